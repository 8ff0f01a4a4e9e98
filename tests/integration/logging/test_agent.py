"""The real agent as a real process: what its program prints is in Cloud Logging before its exit is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.support.cloud import Cloud as Google
from tests.integration.agent.support.vm import Vm
from tests.integration.logging.cloud import PROJECT, Cloud

LOG = {"name": f"projects/{PROJECT}/logs/trainmaster", "task": "worker-replica", "region": "us-central1"}
PROGRAM = """
    import sys
    for nth in range(2500):
        print("step", nth)
    sys.stdout.flush()
    print('{"severity": "NOTICE", "message": "json", "loss": 0.5}')
    sys.stdout.write("no line end")
    sys.stdout.flush()
    raise ValueError("bad shape")
"""


@pytest.fixture
def google() -> Iterator[Google]:
    """Metadata and Pub/Sub."""
    google = Google()
    yield google
    google.close()


@pytest.fixture
def vm(google: Google, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(google, tmp_path)
    vm.program(PROGRAM)
    vm.gang(log=LOG, project=PROJECT)
    google.direct(1, 2)
    yield vm
    vm.power_off()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Cloud]:
    """On a clock of this machine."""
    logs = Cloud(tmp_path, clock_ns=time.time_ns)
    yield logs
    logs.entries.close()


def test_all_a_program_printed_is_in_the_log_when_its_exit_is_told(google: Google, vm: Vm, logs: Cloud) -> None:
    with logs.serving() as address:
        vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 2))
        found = logs.read('resource.type="ml_job" AND resource.labels.task_name="worker-replica-1"')
        stdout = [each for each in found if each["severity"] in ("INFO", "NOTICE")]
        said = [each["jsonPayload"]["message"] for each in stdout]
        assert [text for text in said if text.startswith("step")] == [f"step {nth}" for nth in range(2500)]
        assert {"json", "no line end", "Running module trainer.task."} <= set(said)
        errors = [each["jsonPayload"]["message"] for each in found if each["severity"] == "ERROR"]
        assert (errors[0], errors[-2]) == ("Traceback (most recent call last):", "ValueError: bad shape")
        assert errors[-1] == "Command '['python3', '-m', 'trainer.task']' returned non-zero exit status 1."
        of_program = next(each for each in found if each["jsonPayload"]["message"] == "step 0")
        assert of_program["labels"]["trainmaster/incarnation"] == "2"
        assert of_program["insertId"].startswith("4711-1-2-")
        vm.terminate()
        vm.wait()
    assert "The VM is shutting down." in logs.messages(), "the last words get out, too"


def test_a_cloud_logging_that_does_not_answer_holds_up_neither_the_program_nor_its_exit(google: Google, vm: Vm) -> None:
    vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": "http://127.0.0.1:9"})
    message = google.wait_for_message("replica-exit", (1, 2))
    assert message.body["error"]["type"] == "ValueError"
    assert "no line end" in message.body["tail"]


def test_a_gang_without_a_log_asks_nobody_for_one(google: Google, vm: Vm, logs: Cloud) -> None:
    vm.gang()
    with logs.serving() as address:
        vm.boot({"TRAINMASTER_LOGGING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 2))
        vm.terminate()
        vm.wait()
    assert logs.read() == []
