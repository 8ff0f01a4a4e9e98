"""The real agent as a real process: the program's output is in Cloud Logging before its exit is
reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.support.cloud import Cloud as Google
from tests.integration.agent.support.trial import REPORT_METRIC, configure_trial
from tests.integration.agent.support.vm import NAME, Vm
from tests.integration.logging.cloud import PROJECT, Cloud
from trainmaster.agent.reporting.cloud_log import WRITER
from trainmaster.agent.reporting.serial_console import Loss

LOG = {
    "name": f"projects/{PROJECT}/logs/trainmaster",
    "task": "worker-replica",
    "region": "us-central1",
}
PROGRAM = """
    import sys
    for step in range(2500):
        print("step", step)
    sys.stdout.flush()
    print('{"severity": "NOTICE", "message": "json", "loss": 0.5}')
    sys.stdout.write("no line end")
    sys.stdout.flush()
    raise ValueError("bad shape")
"""


@pytest.fixture
def google() -> Iterator[Google]:
    """The metadata server and Pub/Sub."""
    google = Google()
    yield google
    google.close()


@pytest.fixture
def vm(google: Google, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(google, tmp_path)
    vm.program(PROGRAM)
    vm.configure(log=LOG, project=PROJECT)
    google.direct(attempt=1, incarnation=2)
    yield vm
    vm.power_off()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Cloud]:
    """Cloud Logging with this machine's clock."""
    logs = Cloud(tmp_path, clock_ns=time.time_ns)
    yield logs
    logs.entries.close()


def test_whole_output_is_in_the_log_when_the_exit_is_reported(
    google: Google, vm: Vm, logs: Cloud
) -> None:
    with logs.serving() as address:
        vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 2))
        entries = logs.read(
            'resource.type="ml_job" AND resource.labels.task_name="worker-replica-1"'
        )
        stdout = [entry for entry in entries if entry["severity"] in ("INFO", "NOTICE")]
        messages = [entry["jsonPayload"]["message"] for entry in stdout]
        assert [text for text in messages if text.startswith("step")] == [
            f"step {step}" for step in range(2500)
        ]
        assert {"json", "no line end", "Running module trainer.task."} <= set(messages)
        errors = [
            entry["jsonPayload"]["message"] for entry in entries if entry["severity"] == "ERROR"
        ]
        first_error, *_, last_error, agents_summary = errors
        assert (first_error, last_error) == (
            "Traceback (most recent call last):",
            "ValueError: bad shape",
        )
        assert (
            agents_summary
            == "Command '['python3', '-m', 'trainer.task']' returned non-zero exit status 1."
        )
        writers = {
            entry["jsonPayload"].get("message"): entry["labels"].get("trainmaster/writer")
            for entry in entries
        }
        own = {"Running module trainer.task.", agents_summary}
        assert {text for text, writer in writers.items() if writer == "agent"} >= own
        assert not {"step 0", "json", "no line end", first_error, last_error} & {
            text for text, writer in writers.items() if writer
        }
        first = next(entry for entry in entries if entry["jsonPayload"]["message"] == "step 0")
        assert first["labels"]["trainmaster/incarnation"] == "2"
        assert first["insertId"].startswith("4711-1-2-")
        vm.terminate()
        vm.wait()
    assert "The VM is shutting down." in logs.messages(), "the last lines are sent, too"


def test_measurements_that_did_not_arrive_are_a_number_in_the_log(
    google: Google, vm: Vm, logs: Cloud
) -> None:
    configure_trial(vm, rank_base=0, vm_names=[NAME], log=LOG, project=PROJECT)
    vm.program(f"{REPORT_METRIC}\nreport(*map(float, range(60)), float('nan'))")
    google.guest_attributes_status = 403
    with logs.serving() as address:
        vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 2))
        entries = logs.read(f'severity=WARNING AND labels."{Loss.MEASUREMENTS.value}":*')
    assert [
        (entry["labels"][Loss.MEASUREMENTS.value], entry["labels"].get(WRITER)) for entry in entries
    ] == [("10", None), ("1", None)]
    assert [entry["jsonPayload"]["message"].partition(" because ")[2] for entry in entries] == [
        "at most 50 are sent every 5 s.",
        "they are no finite numbers.",
    ]


def test_unavailable_cloud_logging_delays_neither_program_nor_exit(google: Google, vm: Vm) -> None:
    vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": "http://127.0.0.1:9"})
    message = google.wait_for_message("replica-exit", (1, 2))
    assert message.body["error"]["type"] == "ValueError"
    assert "no line end" in message.body["tail"]


def test_config_without_a_log_writes_no_entries(google: Google, vm: Vm, logs: Cloud) -> None:
    vm.configure()
    with logs.serving() as address:
        vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 2))
        vm.terminate()
        vm.wait()
    assert logs.read() == []
