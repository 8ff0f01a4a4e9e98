"""The exclusion in infra/logging.tf, applied by the Logging emulator: each line of a program is
stored once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.infra.conftest import Plan
from trainmaster.agent.reporting.serial_console import Console, Stream
from trainmaster.settings import PREFIX, Settings, settings
from trainmaster.wiring.fleet import fleet_deps
from trainmaster_emulators.logging.entries import Entries, parse_entry
from trainmaster_emulators.logging.log_filter import parse
from trainmaster_emulators.rest.times import nanoseconds

PROJECT = "projects/my-project"


def runner_entry(
    line: str, vm: str = "tm-digits-1-a1b2c3-worker-0", log: str = "GCEMetadataScripts"
) -> dict[str, Any]:
    """Return what Google's runner of startup scripts writes.

    Source: guest-agent and guest-logging-go of Google.
    """
    return {
        "logName": f"{PROJECT}/logs/{log}",
        "resource": {
            "type": "gce_instance",
            "labels": {"instance_id": "1", "zone": "us-central1-a"},
        },
        "labels": {"instance_name": vm},
        "jsonPayload": {
            "message": f"startup-script: {line}",
            "localTimestamp": "2026-11-21T03:00:00.0000Z",
        },
        "timestamp": "2026-11-21T03:00:00Z",
    }


def test_exclusion_drops_copies_of_program_lines_and_nothing_else(
    plan: Plan, tmp_path: Path
) -> None:
    (exclusion,) = plan.of("google_logging_project_exclusion").values()
    console = tmp_path / "console"
    with console.open("wb") as file:
        output = Console(file.fileno())
        output.log("The agent cannot reach Cloud Logging.")
        output.write(Stream.STDOUT, b"epoch 1\n")
    agent_line, program_line = console.read_text().splitlines()
    copies = [runner_entry(program_line), runner_entry(program_line, log="GCEMetadataScriptRunner")]
    kept = [
        runner_entry(agent_line),
        runner_entry("epoch 1", vm="atm-1"),
        {**runner_entry("epoch 1"), "logName": f"{PROJECT}/logs/trainmaster"},
    ]
    entries, now_ns = Entries(tmp_path / "entries"), nanoseconds(runner_entry("")["timestamp"])
    entries.add(
        [
            parse_entry({**entry, "insertId": str(n)}, {}, now_ns)
            for n, entry in enumerate([*copies, *kept])
        ]
    )
    excluded, _ = entries.page([PROJECT], parse(exclusion["filter"]), None, 100, descending=False)
    entries.close()
    assert [json.loads(entry)["insertId"] for entry in excluded] == ["0", "1"]


def test_serial_console_is_not_logged_unless_a_variable_says_so(plan: Plan) -> None:
    assert not Settings(project="my-project").serial_port_logging
    for function in plan.of("google_cloudfunctions2_function").values():
        variables = function["service_config"][0]["environment_variables"]
        assert variables[f"{PREFIX}SERIAL_PORT_LOGGING"] == "false"


def test_vms_state_whether_their_serial_console_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in (("", "FALSE"), ("true", "TRUE")):
        monkeypatch.setenv(f"{PREFIX}PROJECT", "my-project")
        monkeypatch.setenv(f"{PREFIX}COMPUTE_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{PREFIX}AGENT", f"gs://b/agent/{'0' * 64}.zip")
        if value:
            monkeypatch.setenv(f"{PREFIX}SERIAL_PORT_LOGGING", value)
        settings.cache_clear()
        fleet_deps.cache_clear()
        try:
            assert fleet_deps().agent_files["serial-port-logging-enable"] == expected
        finally:
            settings.cache_clear()
            fleet_deps.cache_clear()
