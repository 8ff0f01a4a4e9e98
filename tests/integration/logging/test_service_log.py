"""The service's own lines: its words, at each decision once, and never in the way of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shared.core.model.plan import Dialect
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.reporting.job_log import ServiceLine, Severity, task_base
from shared.errors import TemporaryError
from shared.flows import readiness, submit
from shared.flows.record import Deps
from shared.gcp import clients
from shared.gcp.job_log import CloudJobLog
from shared.memory.job_log import MemoryJobLog
from shared.presentation.log_reader import parse_entry
from tests.integration.logging.cloud import PROJECT, Cloud
from tests.support.jobs import START, a_spec, a_tuning_spec
from tests.support.serving import serving
from tests.support.world import World

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER = ReplicaId(TaskType.WORKER, 0)


class LoggedWorld(World):
    """A World whose flows speak into a log in memory, or into one that a test gives it."""

    def __init__(self, job_log: MemoryJobLog | None = None) -> None:
        super().__init__()
        self.log = job_log or MemoryJobLog()

    @property
    def deps(self) -> Deps:
        return replace(super().deps, job_log=self.log)

    def said(self) -> list[str]:
        return [line.message for line in self.log.lines(self.job_id)]


def test_a_job_that_goes_well_is_told_in_the_services_words() -> None:
    world = LoggedWorld()
    world.submit()
    world.wait(1)
    world.deliver()
    world.report_all_ready()
    world.send("replica-exit", CHIEF, cause="process", exit_status=0)
    said = world.said()
    assert said[:5] == [
        "Validating job requirements...",
        "Job creation request has been successfully validated.",
        "Job digits_1 is queued.",
        "Waiting for job to be provisioned.",
        "Waiting for training program to start.",
    ]
    assert "Job is running." in said
    assert said[-2:] == ["Tearing down training program.", "Job completed successfully."]


def test_a_job_that_fails_is_told_with_its_error_and_what_was_tried_before() -> None:
    world = LoggedWorld()
    world.start_running()
    error = {"type": "ValueError", "message": "bad", "frame": "task.py:1 in main"}
    world.exit_program(WORKER, error=error, tail="Traceback\nValueError: bad")
    world.deliver()
    world.send("vm-ready", WORKER)
    world.exit_program(WORKER, error=error, tail="Traceback\nValueError: bad")
    lines = world.log.lines(world.job_id)
    assert any(line.severity is Severity.WARNING and "worker 0" in line.message for line in lines), world.said()
    failed = [line for line in lines if line.severity is Severity.ERROR]
    assert failed[0].message.startswith("The replica worker 0 exited with a non-zero status of 1.")
    assert "ValueError: bad" in failed[0].message
    assert lines[-1].message == "Job failed."


def test_an_event_that_is_told_twice_says_its_lines_once_and_one_that_is_ignored_says_nothing() -> None:
    world = LoggedWorld()
    world.start_running()
    before = world.said()
    world.submit()
    for replica in world.replicas:
        readiness.start_if_all_ready(world.job_id, world.deps)
        world.send("vm-ready", replica.replica_id)
    assert world.said() == before


def test_lines_of_a_decision_whose_function_died_before_it_spoke_are_said_by_the_redelivery() -> None:
    world = LoggedWorld()
    find_startup_timeouts = replace(world.deps, job_log=None)
    submit.handle(
        json.dumps({"jobId": world.job_id, **a_spec()}).encode(), "gs://b/jobs/digits.yaml#1", find_startup_timeouts
    )
    assert world.said() == []
    world.submit()
    assert "Job digits_1 is queued." in world.said()


class BrokenLog(MemoryJobLog):
    def write(self, lines: Sequence[ServiceLine]) -> None:
        raise TemporaryError("Cloud Logging: HTTP 403: Permission denied")


def test_a_log_that_fails_holds_up_no_job() -> None:
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
def test_replicas_are_called_in_the_log_what_the_service_called_them(
    task_type: TaskType, dialect: Dialect, name: str
) -> None:
    assert task_base(task_type, dialect) == name


# The adapter, on the emulator.


LINES = tuple(
    ServiceLine("digits_1", f"service-submitted-{nth}", START.replace(microsecond=nth * 10), Severity.WARNING, text)
    for nth, text in enumerate(("one", "two"))
)


@pytest.fixture(params=[frozenset(), frozenset({"ml_job"})], ids=["ml_job allowed", "ml_job refused"])
def job_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CloudJobLog, Cloud]]:
    cloud = Cloud(tmp_path, refused=request.param)
    with cloud.serving() as address:
        logging = clients.logging_client(PROJECT, address, timeout_s=30)
        yield CloudJobLog(logging), cloud
        logging.close()
    cloud.entries.close()


def test_lines_are_entries_of_the_task_service_once_however_often_they_are_written(
    job_log: tuple[CloudJobLog, Cloud],
) -> None:
    log, cloud = job_log
    for _ in range(3):
        log.write(LINES)
    found = cloud.read('labels."ml.googleapis.com/job_id"="digits_1"')
    assert [(each["jsonPayload"]["message"], each["severity"]) for each in found] == [
        ("one", "WARNING"),
        ("two", "WARNING"),
    ]
    labels = found[0]["resource"]["labels"]
    assert labels.get("task_name", labels.get("task_id")) == "service"
    assert {len(each["timestamp"]) for each in found} == {len("2026-11-21T03:00:00.000000001Z")}


def test_lines_of_a_trial_are_its_tuning_jobs_with_the_trials_number(job_log: tuple[CloudJobLog, Cloud]) -> None:
    log, cloud = job_log
    of_study = ServiceLine("digits_1", "service-submitted-0", START, Severity.INFO, "one")
    for line in (of_study, replace(of_study, job_id="digits_1-trial-3", message="of trial 3")):
        log.write([line])
    found = cloud.read('labels."ml.googleapis.com/job_id"="digits_1"')
    told = {each["jsonPayload"]["message"]: each["labels"].get("ml.googleapis.com/trial_id") for each in found}
    assert told == {"one": None, "of trial 3": "3"}
    (shown,) = (parse_entry(each) for each in found if "3" in each["jsonPayload"]["message"])
    assert (shown.trial, shown.source) == ("3", "service #3")


def test_a_trial_is_told_as_its_tuning_job_is_called() -> None:
    world = LoggedWorld()
    world.submit(a_tuning_spec())
    world.deliver()
    assert "Job digits_1 is queued." in [line.message for line in world.log.lines("digits_1-trial-1")]
    assert "Trial 1 begins: --layers 1 --width 16." in world.said()


@pytest.mark.parametrize("answer", [(200, b"<html>"), (403, b'{"error": {}}'), (503, b"")])
def test_an_answer_that_is_none_is_temporary(answer: tuple[int, bytes]) -> None:
    class Wrong(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Wrong)) as address:
        logging = clients.logging_client(PROJECT, address, timeout_s=30)
        with pytest.raises(TemporaryError):
            CloudJobLog(logging).write(LINES)
        logging.close()


def test_nobody_who_listens_is_temporary() -> None:
    with pytest.raises(TemporaryError):
        CloudJobLog(clients.logging_client(PROJECT, "http://127.0.0.1:9", timeout_s=5)).write(LINES)
