"""What a VM prints, on its way to Cloud Logging: every line once and in order, whatever Cloud Logging does."""

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

from shared.agent.control.vm_config import Key
from shared.agent.http.calls import HttpError
from shared.agent.reporting import log_buffer
from shared.agent.reporting.cloud_log import CloudLog, Origin
from shared.agent.reporting.log_buffer import BATCH_LINES_MAX, LogBuffer
from shared.agent.reporting.serial_console import Stream
from tests.integration.logging.cloud import LOG, PROJECT, START_NS, Cloud

ORIGIN = Origin(LOG, PROJECT, "us-central1", "digits_1", "worker-replica-1", "", "4711")


@dataclass
class Shipper:
    """A CloudLog on the emulator, whose network a test can break: `trouble` is raised instead of the answer."""

    cloud: Cloud
    linger_s: float = 0.01
    trouble: list[Exception | Callable[[bytes], None]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    buffer: LogBuffer = field(default_factory=lambda: LogBuffer(lambda: START_NS))

    def __post_init__(self) -> None:
        self.log = CloudLog(ORIGIN, self.post, self.buffer, lambda: Key(2, 3), self.said.append, self.linger_s)
        threading.Thread(target=self.log.carry, daemon=True).start()

    def post(self, body: bytes) -> None:
        self.bodies.append(body)
        if self.trouble:
            trouble = self.trouble[0] if len(self.trouble) == 1 else self.trouble.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            self.trouble.clear()
            trouble(body)
        self.send(body)

    def send(self, body: bytes) -> None:
        status, said = self.cloud.post("write", json.loads(body))
        if status != 200:
            raise HttpError(status, said["error"]["message"])

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


@pytest.mark.parametrize(
    ("line", "stream", "payload", "severity"),
    [
        ("epoch 1", Stream.STDOUT, {"message": "epoch 1"}, "INFO"),
        ("", Stream.STDOUT, {"message": ""}, "INFO"),
        ("Running module trainer.task.", Stream.AGENT, {"message": "Running module trainer.task."}, "INFO"),
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
        ("\r 10%\r 55%\r100%\r", Stream.STDERR, {"message": "100%"}, "ERROR"),
        (
            '{"severity": "warning", "message": "m", "loss": 0.5}',
            Stream.STDERR,
            {"message": "m", "loss": 0.5},
            "WARNING",
        ),
        ('{"levelname": "CRITICAL", "message": "m"}', Stream.STDOUT, {"message": "m"}, "CRITICAL"),
        ('{"severity": 7, "message": ["a"]}', Stream.STDOUT, {"severity": 7, "message": '["a"]'}, "INFO"),
        ('{"loss": NaN}', Stream.STDOUT, {"message": '{"loss": NaN}'}, "INFO"),
        ('{"half": ', Stream.STDOUT, {"message": '{"half": '}, "INFO"),
        ("[" * 9 + "{}", Stream.STDOUT, {"message": "[" * 9 + "{}"}, "INFO"),
        ('{"a": ' * 9999, Stream.STDOUT, {"message": '{"a": ' * 9999}, "INFO"),
        ('{"message": "\\ud800"}', Stream.STDOUT, {"message": "?"}, "INFO"),
    ],
)
def test_a_line_becomes_an_entry(
    shipper: Shipper, line: str, stream: Stream, payload: dict[str, Any], severity: str
) -> None:
    (found,) = shipper.entries(line, stream=stream)
    assert (found["jsonPayload"], found["severity"]) == (payload, severity)


def test_entries_carry_the_labels_that_clients_of_the_old_service_filter_by(shipper: Shipper) -> None:
    (found,) = shipper.entries("hello")
    assert found["resource"] == {
        "type": "ml_job",
        "labels": {"project_id": PROJECT, "job_id": "digits_1", "task_name": "worker-replica-1"},
    }
    assert found["labels"] == {
        "ml.googleapis.com/job_id": "digits_1",
        "ml.googleapis.com/task_name": "worker-replica-1",
        "trainmaster/vm": "4711",
        "trainmaster/attempt": "2",
        "trainmaster/incarnation": "3",
    }
    assert found["logName"] == LOG
    assert found["insertId"] == f"4711-2-3-{START_NS + 1:020d}"


def test_a_traceback_is_one_entry_a_line_in_its_order(shipper: Shipper) -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "    f()", "ValueError: x"]
    found = shipper.entries("\n".join(lines), stream=Stream.STDERR)
    assert [each["jsonPayload"]["message"] for each in found] == lines


def test_times_strictly_increase_as_numbers_and_as_text_though_the_clock_stands_still_or_goes_back(
    cloud: Cloud,
) -> None:
    times = iter([START_NS, START_NS, START_NS - 5 * 10**9, START_NS + 17, START_NS + 10**9, START_NS])
    shipper = Shipper(cloud, buffer=LogBuffer(lambda: next(times)))
    found = shipper.entries("a\nb\nc", "d", "e", "f", "g", "h")
    stamps = [each["timestamp"] for each in found]
    assert [each["jsonPayload"]["message"] for each in found] == list("abcdefgh")
    assert stamps == sorted(set(stamps))
    assert {len(stamp) for stamp in stamps} == {len("2026-11-21T03:00:00.000000001Z")}


def test_every_line_arrives_once_and_in_order_though_writes_fail_and_replies_are_lost(shipper: Shipper) -> None:
    def lose_the_reply(body: bytes) -> None:
        shipper.send(body)
        raise HttpError(0, "reset")

    shipper.trouble = [HttpError(503, "try later"), HttpError(429, "slow down"), lose_the_reply]
    for nth in range(3000):
        shipper.print(f"line {nth}\n")
    deadline = time.monotonic() + 60
    while len(shipper.cloud.read()) < 3000 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert shipper.cloud.messages() == [f"line {nth}" for nth in range(3000)]


@given(st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\r", b"") + b"\n"), max_size=60), st.data())
@settings(deadline=None)
def test_lines_are_the_same_however_they_were_read_and_batched(chunks: list[bytes], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_buffer, "BATCH_LINES_MAX", data.draw(st.integers(1, 9)))
        patch.setattr(log_buffer, "BATCH_BYTES_MAX", data.draw(st.integers(1, 99)))
        buffer = LogBuffer(lambda: 0)
        for chunk in chunks:
            buffer.put(Key(1, 1), Stream.STDOUT, chunk)
        taken = []
        while not buffer.is_empty:
            taken += buffer.take()[0]
    assert b"".join(line.text + b"\n" for line in taken) == b"".join(chunks)
    assert [line.at_ns for line in taken] == sorted({line.at_ns for line in taken})


def test_a_batch_stays_within_what_cloud_logging_takes(shipper: Shipper) -> None:
    found = shipper.entries("\n" * 2500, *["\x01" * 250_000] * 20)
    assert sum(each["jsonPayload"]["message"].count("\x01") for each in found) == 20 * 250_000
    assert max(len(json.loads(body)["entries"]) for body in shipper.bodies) == BATCH_LINES_MAX
    assert max(map(len, shipper.bodies)) < 10_000_000


def test_memory_is_bounded_while_cloud_logging_is_down_and_a_line_says_what_is_missing(
    shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_buffer, "BUFFER_BYTES_MAX", 10_000)
    shipper.trouble = [HttpError(403, "Permission 'logging.logEntries.create' denied")]
    shipper.print("first\n")
    shipper.log.flush(30)
    for nth in range(5000):
        shipper.print(f"line {nth:04d}\n")
    assert sum(len(chunk.lines) for chunk in shipper.buffer._chunks) <= 10_000
    shipper.trouble.clear()
    shipper.log.flush(30)
    first, gap, *rest = shipper.cloud.read()
    assert first["jsonPayload"]["message"] == "first"
    assert gap["jsonPayload"]["message"] == "4000 lines are missing here: Cloud Logging did not take them in time."
    assert gap["severity"] == "WARNING"
    assert [each["jsonPayload"]["message"] for each in rest] == [f"line {nth:04d}" for nth in range(4000, 5000)]


def test_trouble_that_lasts_is_told_once_beside_the_log(shipper: Shipper) -> None:
    shipper.trouble = [HttpError(503, "down")]
    shipper.print("a\n")
    for _ in range(5):
        shipper.log.flush(30)
    shipper.trouble.clear()
    shipper.log.flush(30)
    assert shipper.cloud.messages() == ["a"]
    assert shipper.said == ["Cloud Logging does not take the log (HTTP 503: down); trying on."]


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Shipper]:
    """On a project that may not write entries of the type `ml_job`."""
    cloud = Cloud(tmp_path, frozenset({"ml_job"}))
    yield Shipper(cloud)
    cloud.entries.close()


def test_a_project_that_may_not_write_the_services_type_gets_the_same_labels_under_another(strict: Shipper) -> None:
    found = strict.entries("a") + strict.entries("b")[1:]
    assert [each["jsonPayload"]["message"] for each in found] == ["a", "b"]
    assert {each["resource"]["type"] for each in found} == {"generic_task"}
    assert found[0]["labels"]["ml.googleapis.com/task_name"] == "worker-replica-1"
    tried = [json.loads(body)["resource"]["type"] for body in strict.bodies]
    assert tried == ["ml_job", "generic_task", "generic_task"], "asked once, then known"


def test_a_batch_that_is_refused_for_good_does_not_hold_up_what_follows(shipper: Shipper) -> None:
    shipper.trouble = [HttpError(400, "bad"), HttpError(400, "bad")]
    shipper.print("a\nb\n")
    shipper.log.flush(30)
    shipper.trouble.clear()
    found = [each["jsonPayload"]["message"] for each in shipper.entries("c")]
    assert found == ["2 lines are missing here: Cloud Logging refused them, or some (HTTP 400: bad).", "c"]
    assert shipper.cloud.read()[1]["resource"]["type"] == "ml_job"


def test_a_flush_does_not_wait_for_a_log_that_is_down_nor_for_a_lingering_batch(cloud: Cloud) -> None:
    slow = Shipper(cloud, linger_s=3600)
    assert len(slow.entries("at once")) == 1
    slow.trouble = [HttpError(503, "down")]
    slow.print("b\n")
    began = time.monotonic()
    slow.log.flush(60)
    assert time.monotonic() - began < 30
