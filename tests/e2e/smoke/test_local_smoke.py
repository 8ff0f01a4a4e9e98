"""The smoke test on the realistic local stack: as it is, and with three assumptions broken on
purpose.

The smoke test checks an installation by *steps*, each something that it does on Google Cloud, and
an *assumption* is what Trainmaster relies on there.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from smoke import client_steps, fault_steps
from smoke.local_stack import LocalInstallation
from smoke.run import smoke
from smoke.steps import STEPS, Step
from smoke.world import World
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.services.pubsub import PubSub

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="the smoke test succeeds on a realistic stack, and names broken assumptions",
        quick="`unit/smoke`",
    ),
    pytest.mark.timeout(1800),
]

TIME_SCALE = 0.05
REFUSE_AI_PLATFORM = (
    'case "$*" in *ai-platform*) echo "ERROR: Invalid choice: \'ai-platform\'." >&2; exit 2;;'
    " esac\n"
)
"""Line of a shell script that stands for a gcloud without the commands of AI Platform Training."""


def seen_by_assumption(lines: list[str], verdict: str) -> dict[str, str]:
    """Return what was seen of each assumption with this verdict, from the table of assumptions:
    `| verdict | assumption | expected | seen | documented in |`.
    """
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assumptions = [row for row in rows if len(row) == 5]
    return {text: seen for found, text, _, seen, _ in assumptions if found == verdict}


def test_smoke_on_the_realistic_stack_succeeds_and_sees_what_is_documented() -> None:
    lines: list[str] = []
    assert smoke(LocalInstallation(TIME_SCALE, lines.append), lines.append) == 0, "\n".join(lines)
    assert len(seen_by_assumption(lines, "ok")) >= 10
    assert seen_by_assumption(lines, "DIFFERENT") == {}


def copy_line_like_googles_runner(world: World) -> None:
    """Store a copy of the program's line, as Google's runner of startup scripts does in a project
    whose log filter does not exclude it.
    """
    entry = {
        "logName": f"projects/{world.project}/logs/GCEMetadataScripts",
        "resource": {"type": "gce_instance", "labels": {"project_id": world.project}},
        "jsonPayload": {"message": f"startup-script: smoke-line {world.facts['mark']}"},
    }
    host = os.environ["TRAINMASTER_LOGGING_ENDPOINT"].removeprefix("http://")
    call(host, "POST", "/v2/entries:write", {"entries": [entry]})


def publish_an_event_that_no_function_accepts(world: World) -> None:
    pubsub = PubSub(os.environ["PUBSUB_EMULATOR_HOST"], world.project)
    pubsub.publish("trainmaster-vm-ready", json.dumps({"unknown": 1}).encode())

    def has_dead_letter() -> bool:
        client_steps.count_dead_letters(world)
        return world.facts["dead_letters"] != "0"

    world.until(has_dead_letter, 60, "a dead letter")


def test_smoke_names_three_broken_assumptions_and_the_failed_step(tmp_path: Path) -> None:
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/sh\n{REFUSE_AI_PLATFORM}exec {shutil.which("gcloud")} "$@"\n')
    gcloud.chmod(0o755)
    by_name = {step.name: step for step in STEPS}
    steps = [
        by_name["probe"],
        Step("finish", fault_steps.finish_probe, ("probe",)),
        Step("copy", copy_line_like_googles_runner, ("finish",)),
        Step("publish", publish_an_event_that_no_function_accepts),
        *(by_name[name] for name in ("logs", "gcloud", "sdk", "dead letters")),
    ]
    lines: list[str] = []
    installation = LocalInstallation(
        TIME_SCALE, lines.append, {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    )
    assert smoke(installation, lines.append, steps) == 1
    assert seen_by_assumption(lines, "DIFFERENT") == {
        "Each line of a program is stored once.": "1 in GCEMetadataScripts, 1 in trainmaster",
        "The installed gcloud still has the commands of AI Platform Training.": (
            "refused: ERROR: Invalid choice: 'ai-platform'."
        ),
        "No event of these jobs is refused.": "1",
    }, "\n".join(lines)
    assert lines[-1].endswith("Failed steps: gcloud."), "\n".join(lines)
