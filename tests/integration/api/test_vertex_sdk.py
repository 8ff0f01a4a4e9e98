"""Vertex AI's own Python SDK, in an environment of its own: submits, waits, lists, cancels and deletes over REST."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shared.core.model.job import JobState
from shared.memory.access import MemoryAccess
from tests.integration.api.client import OWNER, TOKENS, VIEWER, an_app
from tests.integration.api.served import serving
from tests.support.world import World

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".images" / "aiplatform" / "bin" / "python"
PROGRAM = Path(__file__).parent / "programs" / "vertex_sdk.py"

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


def advance(world: World, number: str) -> None:
    """One step of a job that somebody waits for: machines, then all of them up, then its primary's end."""
    loaded = world.store.load(f"custom_{number}")
    if loaded is None or (job := loaded.state.job).state.is_terminal:
        return
    ends = {"good": 0, "bad": 2}
    name = json.loads(job.spec_json)["displayName"]
    if name not in ends:
        return
    world.job_id = job.job_id
    if job.state is JobState.RUNNING:
        world.send("replica-exit", job.plan.primary, cause="process", exit_status=ends[name], tail="no such file")
    elif job.state is JobState.PREPARING:
        world.report_all_ready()
    else:
        world.deliver()


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """What the SDK asked, each as METHOD ADDRESS."""
    return []


@pytest.fixture(scope="module")
def said(asked: list[str]) -> dict[str, Any]:
    """What the program saw. A job that is looked at goes on by one step."""
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        app = an_app(world, MemoryAccess(TOKENS), patch)

        def moving(environ: dict[str, Any], start: Any) -> Any:
            asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            if environ["REQUEST_METHOD"] == "GET":
                advance(world, environ["PATH_INFO"].rpartition("/")[2])
            return app(environ, start)

        with serving(moving) as endpoint:
            argv = [str(PYTHON), str(PROGRAM), endpoint, OWNER, VIEWER]
            ran = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_job_is_submitted_as_it_was_said_with_enums_by_number(said: dict[str, Any]) -> None:
    found = said["submitted"]
    assert found["number"].isdecimal()
    assert (found["state"], found["labels"], found["counts"]) == ("JOB_STATE_QUEUED", {"team": "a"}, [1, 3])
    assert (found["accelerator"], found["scheduling"]) == ("NVIDIA_TESLA_T4", [3600, True])
    assert found["created"] == "2026-11-21T03:00:00+00:00"


def test_it_is_cancelled_and_deleted_and_then_not_found(said: dict[str, Any]) -> None:
    found = said["submitted"]
    assert found["cancelled"] == ["JOB_STATE_CANCELLED", 1]
    kind, message = found["deleted"]
    assert kind == "NotFound"
    assert f"customJobs/{found['number']} was not found" in message


def test_run_waits_for_the_end_and_raises_what_a_failed_job_died_of(said: dict[str, Any]) -> None:
    assert said["run"]["good"] == ["JOB_STATE_SUCCEEDED", True, True]
    assert "code: 3" in said["run"]["bad"]
    assert "The replica chief 0 exited with a non-zero status of 2." in said["run"]["bad"]
    assert "no such file" in said["run"]["bad"]


def test_lists_are_filtered_by_us_and_ordered_by_the_client(said: dict[str, Any]) -> None:
    found = said["listed"]
    assert set(found["every"]) == {"good", "bad", "x1", "x2", "x3"}
    assert (found["named"], found["ended"]) == (["x2"], ["good"])
    assert found["ordered"] == ["bad", "good", "x1", "x2", "x3"]


def test_a_study_is_described_by_enums_cancelled_and_deleted(said: dict[str, Any]) -> None:
    found = said["tuned"]
    assert (found["counts"], found["study"]) == ([4, 2], ["RANDOM_SEARCH", "MAXIMIZE", "UNIT_LOG_SCALE"])
    assert (found["listed"], found["not_a_custom_job"]) == (["tuned"], [])
    assert found["cancelled"] == "JOB_STATE_CANCELLED"
    assert found["deleted"][0] == "NotFound"


@pytest.mark.parametrize(
    ("story", "kind", "words"),
    [
        ("nobody", "NotFound", "customJobs/17 was not found"),
        ("wrong", "BadRequest", "job_spec.worker_pool_specs[0].machine_spec.machine_type Error: "),
        ("account", "Forbidden", "You do not have permission to act as service_account: other@"),
        ("viewer", "Forbidden", "Permission 'aiplatform.customJobs.create' denied"),
        ("pipeline", "NotFound", "Create a custom job instead (aiplatform.CustomJob)"),
        ("stranger", "RefreshError", ""),
    ],
)
def test_refusals_are_the_exceptions_that_programs_catch(
    said: dict[str, Any], story: str, kind: str, words: str
) -> None:
    assert said["refused"][story][0] == kind
    assert words in said["refused"][story][1]


def test_it_asks_nothing_but_version_one(said: dict[str, Any], asked: list[str]) -> None:
    assert said
    assert all(line.split()[1].startswith("/v1/projects/my-project/locations/us-central1/") for line in asked)
