"""Copying a VM's output to Cloud Logging: each line once and in order, whatever Cloud
Logging does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.logging.cloud import LOG, PROJECT, START_NS, Cloud
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting import log_buffer
from trainmaster.agent.reporting.cloud_log import CloudLog, LogOrigin
from trainmaster.agent.reporting.log_buffer import BATCH_LINES_MAX, LogBuffer
from trainmaster.agent.reporting.serial_console import Stream

ORIGIN = LogOrigin(LOG, PROJECT, "us-central1", "digits_1", "worker-replica-1", "", "4711")


@dataclass
class Shipper:
    """A CloudLog on the emulator.

    `failures` are raised, or called, instead of the next calls; the last one stays.
    """

    cloud: Cloud
    linger_s: float = 0.01
    failures: list[Exception | Callable[[bytes], None]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    buffer: LogBuffer = field(default_factory=lambda: LogBuffer(lambda: START_NS))

    def __post_init__(self) -> None:
        self.log = CloudLog(
            ORIGIN,
            self.post,
            self.buffer,
            lambda: IncarnationKey(2, 3),
            self.problems.append,
            self.linger_s,
        )
        threading.Thread(target=self.log.run, daemon=True).start()

    def post(self, body: bytes) -> None:
        self.bodies.append(body)
        if self.failures:
            failure = self.failures[0] if len(self.failures) == 1 else self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            self.failures.clear()
            failure(body)
        self.send(body)

    def send(self, body: bytes) -> None:
        status, answer = self.cloud.post("write", json.loads(body))
        if status != 200:
            raise HttpError(status, answer["error"]["message"])

    def print(self, text: str, stream: Stream = Stream.STDOUT) -> None:
        self.log.put(stream, text.encode())

    def entries(self, *texts: str, stream: Stream = Stream.STDOUT) -> list[dict[str, Any]]:
        for text in texts:
            self.print(f"{text}\n", stream)
        self.log.flush(30)
        return self.cloud.read()


@pytest.fixture
def shipper(cloud: Cloud) -> Shipper:
    return Shipper(cloud)


TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize(
    ("line", "stream", "payload", "severity"),
    [
        ("epoch 1", Stream.STDOUT, {"message": "epoch 1"}, "INFO"),
        ("", Stream.STDOUT, {"message": ""}, "INFO"),
        (
            "Running module trainer.task.",
            Stream.AGENT,
            {"message": "Running module trainer.task."},
            "INFO",
        ),
        ("ValueError: bad", Stream.STDERR, {"message": "ValueError: bad"}, "ERROR"),
        ("INFO:root:step 3", Stream.STDERR, {"message": "INFO:root:step 3"}, "INFO"),
        (
            "W1121 03:00:00.123 7 x.cc:1] slow",
            Stream.STDERR,
            {"message": "W1121 03:00:00.123 7 x.cc:1] slow"},
            "WARNING",
        ),
        (
            "2026-11-21 03:00:00.123456: I tensorflow/core/x.cc:1] cpu",
            Stream.STDERR,
            {"message": "2026-11-21 03:00:00.123456: I tensorflow/core/x.cc:1] cpu"},
            "INFO",
        ),
        ("\r 10%\r 55%\r100%\r", Stream.STDERR, {"message": "100%"}, "INFO"),
        ("\r 5%\r 9%" + TRACEBACK, Stream.STDERR, {"message": " 9%" + TRACEBACK}, "ERROR"),
        (
            '{"severity": "warning", "message": "m", "loss": 0.5}',
            Stream.STDERR,
            {"message": "m", "loss": 0.5},
            "WARNING",
        ),
        ('{"levelname": "CRITICAL", "message": "m"}', Stream.STDOUT, {"message": "m"}, "CRITICAL"),
        (
            '{"severity": 7, "message": ["a"]}',
            Stream.STDOUT,
            {"severity": 7, "message": '["a"]'},
            "INFO",
        ),
        ('{"loss": NaN}', Stream.STDOUT, {"message": '{"loss": NaN}'}, "INFO"),
        ('{"half": ', Stream.STDOUT, {"message": '{"half": '}, "INFO"),
        ("[" * 9 + "{}", Stream.STDOUT, {"message": "[" * 9 + "{}"}, "INFO"),
        ('{"a": ' * 9999, Stream.STDOUT, {"message": '{"a": ' * 9999}, "INFO"),
        ('{"message": "\\ud800"}', Stream.STDOUT, {"message": "?"}, "INFO"),
    ],
)
def test_line_becomes_an_entry(
    shipper: Shipper, line: str, stream: Stream, payload: dict[str, Any], severity: str
) -> None:
    (entry,) = shipper.entries(line, stream=stream)
    assert (entry["jsonPayload"], entry["severity"]) == (payload, severity)


def test_entries_have_the_labels_of_ai_platform_training(shipper: Shipper) -> None:
    (entry,) = shipper.entries("hello")
    assert entry["resource"] == {
        "type": "ml_job",
        "labels": {"project_id": PROJECT, "job_id": "digits_1", "task_name": "worker-replica-1"},
    }
    assert entry["labels"] == {
        "ml.googleapis.com/job_id": "digits_1",
        "ml.googleapis.com/task_name": "worker-replica-1",
        "trainmaster/vm": "4711",
        "trainmaster/attempt": "2",
        "trainmaster/incarnation": "3",
    }
    assert entry["logName"] == LOG
    assert entry["insertId"] == f"4711-2-3-{START_NS + 1:020d}"


def test_traceback_has_one_entry_per_line_in_order(shipper: Shipper) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "    f()",
        "ValueError: x",
    ]
    entries = shipper.entries("\n".join(lines), stream=Stream.STDERR)
    assert [entry["jsonPayload"]["message"] for entry in entries] == lines


def test_times_strictly_increase_if_the_clock_stands_still_or_goes_back(
    cloud: Cloud,
) -> None:
    times = iter(
        [START_NS, START_NS, START_NS - 5 * 10**9, START_NS + 17, START_NS + 10**9, START_NS]
    )
    shipper = Shipper(cloud, buffer=LogBuffer(lambda: next(times)))
    entries = shipper.entries("a\nb\nc", "d", "e", "f", "g", "h")
    stamps = [entry["timestamp"] for entry in entries]
    assert [entry["jsonPayload"]["message"] for entry in entries] == list("abcdefgh")
    assert stamps == sorted(set(stamps))
    assert {len(stamp) for stamp in stamps} == {len("2026-11-21T03:00:00.000000001Z")}


def test_lines_arrive_once_and_in_order_if_writes_fail_or_replies_are_lost(
    shipper: Shipper,
) -> None:
    def lose_the_reply(body: bytes) -> None:
        shipper.send(body)
        raise HttpError(0, "reset")

    shipper.failures = [HttpError(503, "try later"), HttpError(429, "slow down"), lose_the_reply]
    for number in range(3000):
        shipper.print(f"line {number}\n")
    deadline = time.monotonic() + 60
    while len(shipper.cloud.read()) < 3000 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert shipper.cloud.messages() == [f"line {number}" for number in range(3000)]


@given(
    st.lists(
        st.binary(max_size=40).map(lambda text: text.replace(b"\r", b"") + b"\n"), max_size=60
    ),
    st.data(),
)
@settings(deadline=None)
def test_lines_are_preserved_for_any_chunks_and_batches(
    chunks: list[bytes], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_buffer, "BATCH_LINES_MAX", data.draw(st.integers(1, 9)))
        patch.setattr(log_buffer, "BATCH_BYTES_MAX", data.draw(st.integers(1, 99)))
        buffer = LogBuffer(lambda: 0)
        for chunk in chunks:
            buffer.put(IncarnationKey(1, 1), Stream.STDOUT, chunk)
        lines = []
        while not buffer.is_empty:
            lines += buffer.take()[0]
    assert b"".join(line.text + b"\n" for line in lines) == b"".join(chunks)
    assert [line.at_ns for line in lines] == sorted({line.at_ns for line in lines})


def test_batches_stay_within_the_limits_of_cloud_logging(shipper: Shipper) -> None:
    entries = shipper.entries("\n" * 2500, *["\x01" * 250_000] * 20)
    assert sum(entry["jsonPayload"]["message"].count("\x01") for entry in entries) == 20 * 250_000
    assert max(len(json.loads(body)["entries"]) for body in shipper.bodies) == BATCH_LINES_MAX
    assert max(map(len, shipper.bodies)) < 10_000_000


def test_buffer_is_bounded_during_an_outage_and_an_entry_counts_lost_lines(
    shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_buffer, "BUFFER_BYTES_MAX", 10_000)
    shipper.failures = [HttpError(403, "Permission 'logging.logEntries.create' denied")]
    shipper.print("first\n")
    shipper.log.flush(30)
    for number in range(5000):
        shipper.print(f"line {number:04d}\n")
    assert sum(len(chunk.lines) for chunk in shipper.buffer._chunks) <= 10_000
    shipper.failures.clear()
    shipper.log.flush(30)
    first, gap, *rest = shipper.cloud.read()
    assert first["jsonPayload"]["message"] == "first"
    assert (
        gap["jsonPayload"]["message"]
        == "4000 lines are missing here: Cloud Logging did not accept them in time."
    )
    assert gap["severity"] == "WARNING"
    assert [entry["jsonPayload"]["message"] for entry in rest] == [
        f"line {number:04d}" for number in range(4000, 5000)
    ]


def test_lasting_error_is_reported_once_outside_the_log(shipper: Shipper) -> None:
    shipper.failures = [HttpError(503, "down")]
    shipper.print("a\n")
    for _ in range(5):
        shipper.log.flush(30)
    shipper.failures.clear()
    shipper.log.flush(30)
    assert shipper.cloud.messages() == ["a"]
    assert shipper.problems == [
        "Cloud Logging does not accept the log (HTTP 503: down); still trying."
    ]


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Shipper]:
    """A CloudLog in a project that may not write entries of the type `ml_job`."""
    cloud = Cloud(tmp_path, frozenset({"ml_job"}))
    yield Shipper(cloud)
    cloud.entries.close()


def test_project_that_may_not_write_ml_job_gets_generic_task(strict: Shipper) -> None:
    entries = strict.entries("a") + strict.entries("b")[1:]
    assert [entry["jsonPayload"]["message"] for entry in entries] == ["a", "b"]
    assert {entry["resource"]["type"] for entry in entries} == {"generic_task"}
    assert entries[0]["labels"]["ml.googleapis.com/task_name"] == "worker-replica-1"
    tried = [json.loads(body)["resource"]["type"] for body in strict.bodies]
    assert tried == [
        "ml_job",
        "generic_task",
        "generic_task",
    ], "the rejected type is tried only once"


def test_rejected_batch_does_not_delay_later_lines(shipper: Shipper) -> None:
    shipper.failures = [HttpError(400, "bad"), HttpError(400, "bad")]
    shipper.print("a\nb\n")
    shipper.log.flush(30)
    shipper.failures.clear()
    messages = [entry["jsonPayload"]["message"] for entry in shipper.entries("c")]
    assert messages == [
        "2 lines are missing here: Cloud Logging rejected some or all of them (HTTP 400: bad).",
        "c",
    ]
    assert shipper.cloud.read()[1]["resource"]["type"] == "ml_job"


def test_flush_waits_neither_for_an_outage_nor_for_a_full_batch(cloud: Cloud) -> None:
    slow = Shipper(cloud, linger_s=3600)
    assert len(slow.entries("at once")) == 1
    slow.failures = [HttpError(503, "down")]
    slow.print("b\n")
    began = time.monotonic()
    slow.log.flush(60)
    assert time.monotonic() - began < 30
