"""The lines that the service itself writes into a job's log: their text, once per decision, and
failures to write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.logging.cloud import PROJECT, Cloud
from tests.support.jobs import START, a_spec, a_tuning_spec
from tests.support.serving import serving
from tests.support.world import World
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reporting.job_log import ServiceLine, Severity, task_base
from trainmaster.errors import TemporaryError
from trainmaster.flows import submit
from trainmaster.flows.commit import readiness
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.gcp.job_log import CloudJobLog
from trainmaster.presentation.log_reader import parse_entry
from trainmaster_local.memory.job_log import MemoryJobLog

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER = ReplicaId(TaskType.WORKER, 0)


class LoggedWorld(World):
    """A World whose flows write into a log: in memory, or the given one."""

    def __init__(self, job_log: MemoryJobLog | None = None) -> None:
        super().__init__()
        self.log = job_log or MemoryJobLog()

    @property
    def deps(self) -> CreationDeps:
        return replace(super().deps, job_log=self.log)

    def messages(self) -> list[str]:
        return [line.message for line in self.log.lines(self.job_id)]


def test_successful_job_logs_its_lifecycle() -> None:
    world = LoggedWorld()
    world.submit()
    world.wait(1)
    world.deliver()
    world.report_all_ready()
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    messages = world.messages()
    assert messages[:5] == [
        "Validating job requirements...",
        "Job creation request has been successfully validated.",
        "Job digits_1 is queued.",
        "Waiting for job to be provisioned.",
        "Waiting for training program to start.",
    ]
    assert "Job is running." in messages
    assert messages[-2:] == ["Tearing down training program.", "Job completed successfully."]


def test_failed_job_logs_the_retry_and_the_error() -> None:
    """The same error twice proves a bug of the program, and ends the job."""
    world = LoggedWorld()
    world.start_running()
    error = {
        "type": "ValueError",
        "message": "bad",
        "frame": "task.py:1 in main",
        "own_frame": "task.py:1 in main",
    }
    world.exit_program(WORKER, ran_s=2.0, error=error, tail="Traceback\nValueError: bad")
    world.deliver()
    world.exit_program(WORKER, ran_s=2.0, error=error, tail="Traceback\nValueError: bad")
    world.deliver()
    lines = world.log.lines(world.job_id)
    assert any(
        line.severity is Severity.WARNING and "worker 0" in line.message for line in lines
    ), world.messages()
    failed = [line for line in lines if line.severity is Severity.ERROR]
    assert failed[0].message.startswith("The replica worker 0 exited with a non-zero status of 1.")
    assert "ValueError: bad" in failed[0].message
    assert lines[-1].message == "Job failed."


def test_repeated_and_ignored_events_log_nothing() -> None:
    world = LoggedWorld()
    world.start_running()
    before = world.messages()
    world.submit()
    for replica in world.replicas:
        readiness.start_if_all_ready(world.job, world.deps)
        world.send("vm-ready", replica.replica_id)
    assert world.messages() == before


def test_redelivery_logs_the_lines_that_a_killed_function_did_not_write() -> None:
    world = LoggedWorld()
    without_log = replace(world.deps, job_log=None)
    submit.handle(
        json.dumps({"jobId": world.job_id, **a_spec()}).encode(),
        "gs://b/jobs/digits.yaml#1",
        without_log,
    )
    assert world.messages() == []
    world.submit()
    assert "Job digits_1 is queued." in world.messages()


class BrokenLog(MemoryJobLog):
    def write(self, lines: Sequence[ServiceLine]) -> None:
        raise TemporaryError("Cloud Logging: HTTP 403: Permission denied")


def test_failing_log_does_not_stop_the_job() -> None:
    world = LoggedWorld(BrokenLog())
    world.start_running()
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    assert world.state == "SUCCEEDED"
    world.check()


@pytest.mark.parametrize(
    ("task_type", "dialect", "name"),
    [
        (TaskType.CHIEF, Dialect.AI_PLATFORM, "master-replica"),
        (TaskType.MASTER, Dialect.AI_PLATFORM, "master-replica"),
        (TaskType.WORKER, Dialect.AI_PLATFORM, "worker-replica"),
        (TaskType.PS, Dialect.AI_PLATFORM, "ps-replica"),
        (TaskType.EVALUATOR, Dialect.AI_PLATFORM, "evaluator-replica"),
        (TaskType.WORKER, Dialect.VERTEX, "workerpool1"),
    ],
)
def test_task_names_in_the_log_are_those_of_ai_platform(
    task_type: TaskType, dialect: Dialect, name: str
) -> None:
    assert task_base(task_type, dialect) == name


# The adapter, with the emulator.


LINES = tuple(
    ServiceLine(
        "digits_1",
        f"service-submitted-{n}",
        START.replace(microsecond=n * 10),
        Severity.WARNING,
        text,
    )
    for n, text in enumerate(("one", "two"))
)


@pytest.fixture(
    params=[frozenset(), frozenset({"ml_job"})], ids=["ml_job allowed", "ml_job refused"]
)
def job_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CloudJobLog, Cloud]]:
    """The adapter, and Cloud Logging, which may refuse entries of the resource type `ml_job`."""
    cloud = Cloud(tmp_path, refused=request.param)
    with cloud.serving() as address:
        yield CloudJobLog(PROJECT, address), cloud
    cloud.entries.close()


def test_repeated_write_stores_each_line_once_for_the_task_service(
    job_log: tuple[CloudJobLog, Cloud],
) -> None:
    log, cloud = job_log
    for _ in range(3):
        log.write(LINES)
    entries = cloud.read('labels."ml.googleapis.com/job_id"="digits_1"')
    assert [(entry["jsonPayload"]["message"], entry["severity"]) for entry in entries] == [
        ("one", "WARNING"),
        ("two", "WARNING"),
    ]
    labels = entries[0]["resource"]["labels"]
    assert labels.get("task_name", labels.get("task_id")) == "service"
    in_nanoseconds = re.compile(r"2026-11-21T03:00:00\.\d{9}Z")
    assert all(in_nanoseconds.fullmatch(entry["timestamp"]) for entry in entries)


def test_lines_of_a_trial_are_in_the_log_of_its_tuning_job(
    job_log: tuple[CloudJobLog, Cloud],
) -> None:
    log, cloud = job_log
    study_line = ServiceLine("digits_1", "service-submitted-0", START, Severity.INFO, "one")
    for line in (study_line, replace(study_line, job_id="digits_1-trial-3", message="of trial 3")):
        log.write([line])
    entries = cloud.read('labels."ml.googleapis.com/job_id"="digits_1"')
    trials = {
        entry["jsonPayload"]["message"]: entry["labels"].get("ml.googleapis.com/trial_id")
        for entry in entries
    }
    assert trials == {"one": None, "of trial 3": "3"}
    (shown,) = (parse_entry(entry) for entry in entries if "3" in entry["jsonPayload"]["message"])
    assert (shown.trial, shown.source) == ("3", "service #3")


def test_trial_log_uses_the_name_of_the_tuning_job() -> None:
    world = LoggedWorld()
    world.submit(a_tuning_spec())
    world.deliver()
    assert "Job digits_1 is queued." in [
        line.message for line in world.log.lines("digits_1-trial-1")
    ]
    assert "Trial 1 begins: --layers 1 --width 16." in world.messages()


@pytest.mark.parametrize("response", [(200, b"<html>"), (403, b'{"error": {}}'), (503, b"")])
def test_invalid_response_is_temporary(response: tuple[int, bytes]) -> None:
    class InvalidHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(response[0])
            self.end_headers()
            self.wfile.write(response[1])

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with (
        serving(ThreadingHTTPServer(("127.0.0.1", 0), InvalidHandler)) as address,
        pytest.raises(TemporaryError),
    ):
        CloudJobLog(PROJECT, address).write(LINES)


def test_connection_error_is_temporary() -> None:
    with pytest.raises(TemporaryError):
        CloudJobLog(PROJECT, "http://127.0.0.1:9").write(LINES)
