"""Copying a VM's output to Cloud Logging: each line once and in order, whatever Cloud
Logging does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.logging.cloud import LOG, PROJECT, START_NS, Cloud
from tests.integration.logging.shipper import FLUSH_S, Shipper, account
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting import log_buffer
from trainmaster.agent.reporting.cloud_log import BEHIND, SENDERS, SHUT_DOWN
from trainmaster.agent.reporting.log_buffer import BATCH_LINES_MAX, Line, LogBuffer
from trainmaster.agent.reporting.serial_console import Loss, Stream, Unlogged


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
        lines: list[Line] = []
        while not buffer.is_empty:
            lines += buffer.take().lines
    assert b"".join(line.text + b"\n" for line in lines) == b"".join(chunks)
    assert [line.at_ns for line in lines] == sorted({line.at_ns for line in lines})


def test_batches_stay_within_the_limits_of_cloud_logging(shipper: Shipper) -> None:
    entries = shipper.entries("\n" * 2500, *["\x01" * 250_000] * 20)
    assert sum(entry["jsonPayload"]["message"].count("\x01") for entry in entries) == 20 * 250_000
    assert max(len(json.loads(body)["entries"]) for body in shipper.bodies) == BATCH_LINES_MAX
    assert max(map(len, shipper.bodies)) < 10_000_000


def test_buffer_is_bounded_during_an_outage_and_an_entry_counts_lost_lines(
    cloud: Cloud,
) -> None:
    shipper = Shipper(cloud, buffer=LogBuffer(lambda: START_NS, bytes_max=10_000))
    shipper.failures = [HttpError(403, "Permission 'logging.logEntries.create' denied")]
    shipper.print("first\n")
    shipper.log.flush(FLUSH_S)
    for number in range(5000):
        shipper.print(f"line {number:04d}\n")
    assert sum(len(chunk.lines) for chunk in shipper.buffer._chunks) <= 10_000
    shipper.failures.clear()
    shipper.log.flush(FLUSH_S)
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
        shipper.log.flush(FLUSH_S)
    shipper.failures.clear()
    shipper.log.flush(FLUSH_S)
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


def test_only_the_refused_lines_of_a_batch_are_lost_and_they_are_named(
    shipper: Shipper,
) -> None:
    too_long = json.dumps({"message": "too long", "loss": [0] * 60_000})
    entries = shipper.entries("a", too_long, "b")
    (gap,) = [entry for entry in entries if Loss.LINES.value in entry["labels"]]
    assert [entry["jsonPayload"]["message"] for entry in entries if entry is not gap] == ["a", "b"]
    assert (gap["labels"][Loss.LINES.value], gap["severity"]) == ("1", "WARNING")
    text = gap["jsonPayload"]["message"]
    assert text.startswith('1 line is missing here: Cloud Logging refused \'{"message": "too long"')
    assert "exceeds maximum size" in text


def test_only_the_bad_line_is_lost_if_the_answer_does_not_name_it(shipper: Shipper) -> None:
    def refuse(body: bytes) -> None:
        shipper.failures.append(refuse)
        if b'"line 77"' in body:
            raise HttpError(400, "bad")

    shipper.failures = [refuse]
    shipper.print("".join(f"line {number}\n" for number in range(200)))
    shipper.log.flush(FLUSH_S)
    entries = shipper.cloud.read()
    assert account(entries) == (199, 1)
    assert "1 line is missing here: Cloud Logging refused 'line 77' (HTTP 400: bad)." in [
        entry["jsonPayload"]["message"] for entry in entries
    ]


def test_refused_batch_does_not_delay_later_lines(shipper: Shipper) -> None:
    shipper.failures = [HttpError(400, "bad")]
    shipper.print("".join(f"line {number}\n" for number in range(500)))
    shipper.log.flush(2)
    assert len(shipper.bodies) < 200, "not each line is tried alone if all are refused"
    shipper.failures.clear()
    entries = shipper.entries("c")
    assert account(entries) == (0, 500)
    assert entries[-1]["jsonPayload"]["message"] == "c"
    assert entries[-1]["resource"]["type"] == "ml_job"


def test_several_requests_at_a_time_send_a_backlog_and_name_what_is_not_accepted(
    shipper: Shipper,
) -> None:
    """Requests that are sent beside an earlier one name, in the label BEHIND, the time of the
    oldest line that may not be stored yet: readers wait for it.
    """
    may_continue = threading.Event()
    most = threading.Semaphore(0)

    def wait(body: bytes) -> None:
        shipper.failures.append(wait)
        most.release()
        may_continue.wait(30)

    shipper.failures = [wait]
    shipper.print("".join(f"line {number}\n" for number in range(9000)))
    for _ in range(SENDERS):
        assert most.acquire(timeout=30)
    may_continue.set()
    shipper.log.flush(FLUSH_S)
    entries = shipper.cloud.read()
    assert account(entries) == (9000, 0)
    first = entries[0]["timestamp"]
    first_of_each_request = entries[: 4 * BATCH_LINES_MAX : BATCH_LINES_MAX]
    behind = [entry["labels"].get(BEHIND) for entry in first_of_each_request]
    assert behind == [None, first, first, first]
    (last,) = shipper.entries("end")[-1:]
    assert BEHIND not in last["labels"]


def test_newest_lines_are_sent_and_the_rest_is_counted_if_the_vm_shuts_down(
    shipper: Shipper,
) -> None:
    def wait(body: bytes) -> None:
        shipper.failures.append(wait)
        time.sleep(0.2)

    shipper.failures = [wait]
    shipper.print("".join(f"line {number}\n" for number in range(50_000)))
    shipper.log.close(1.0)
    entries = shipper.cloud.read()
    stored, missing = account(entries)
    assert stored + missing == 50_000
    assert 0 < stored < 50_000
    assert entries[-1]["jsonPayload"]["message"] == "line 49999"
    assert f"{missing} lines are missing here: {SHUT_DOWN}." in [
        entry["jsonPayload"]["message"] for entry in entries
    ]


def test_flush_goes_on_after_an_error_while_lines_are_accepted(shipper: Shipper) -> None:
    def fail_sometimes(body: bytes) -> None:
        shipper.failures.append(fail_sometimes)
        if len(shipper.bodies) % 3 == 2:
            raise HttpError(503, "try later")

    shipper.failures = [fail_sometimes]
    shipper.print("".join(f"line {number}\n" for number in range(12_000)))
    shipper.log.flush(FLUSH_S)
    assert account(shipper.cloud.read()) == (12_000, 0)


def test_flush_ends_when_it_is_needless_and_when_the_vm_shuts_down(shipper: Shipper) -> None:
    def wait(body: bytes) -> None:
        shipper.failures.append(wait)
        time.sleep(0.5)

    shipper.failures = [wait]
    shipper.print("".join(f"line {number}\n" for number in range(100_000)))
    shipper.log.flush(FLUSH_S, lambda: True)
    shipper.log.hurry()
    shipper.log.flush(FLUSH_S)
    assert not shipper.buffer.is_empty, "a flush has waited until all lines were sent"
    shipper.log.close(0)


@given(
    st.lists(st.sampled_from(["", "503", "lost reply", "400", "refuse"]), max_size=30),
    st.lists(st.integers(1, 400), min_size=1, max_size=12),
    st.integers(500, 100_000),
)
@settings(deadline=None, max_examples=40)
def test_each_line_is_stored_or_counted_whatever_fails(
    tmp_path_factory: pytest.TempPathFactory,
    outcomes: list[str],
    chunks: list[int],
    bytes_max: int,
) -> None:
    cloud = Cloud(tmp_path_factory.mktemp("log"))
    shipper = Shipper(cloud, buffer=LogBuffer(lambda: START_NS, bytes_max))
    left = [*outcomes]
    arrived: set[str] = set()

    def act(body: bytes) -> None:
        shipper.failures.append(act)
        outcome = left.pop() if left else ""
        if outcome == "503":
            raise HttpError(503, "later")
        if outcome == "400":
            raise HttpError(400, "bad")
        entries = json.loads(body)["entries"]
        if outcome == "lost reply":
            shipper.send(body)
            arrived.update(entry["insertId"] for entry in entries)
            raise HttpError(0, "reset")
        # What Cloud Logging has stored it does not refuse later.
        if outcome == "refuse" and entries[-1]["insertId"] not in arrived:
            entries[-1]["severity"] = "no such severity"
            shipper.send(json.dumps({**json.loads(body), "entries": entries}).encode())

    shipper.failures = [act]
    printed = 0
    for count in chunks:
        shipper.print("".join(f"line {printed + number}\n" for number in range(count)))
        printed += count
    for _ in range(len(outcomes) + 2):
        shipper.log.flush(FLUSH_S)
    shipper.log.close(10)
    stored, missing = account(cloud.read())
    cloud.entries.close()
    assert stored + missing == printed
    assert shipper.log.unlogged() == Unlogged()


@pytest.mark.parametrize("status", [403, 400, 503])
def test_lines_are_counted_outside_the_log_while_it_refuses_everything(
    shipper: Shipper, status: int
) -> None:
    def refuse(body: bytes) -> None:
        shipper.failures.append(refuse)
        raise HttpError(status, "no")

    shipper.failures = [refuse]
    shipper.print("".join(f"line {number}\n" for number in range(1_500)))
    for _ in range(3):
        shipper.log.flush(FLUSH_S)
    assert shipper.log.unlogged() == Unlogged(1_500, f"HTTP {status}: no")
    shipper.failures.clear()
    shipper.log.flush(FLUSH_S)
    assert shipper.log.unlogged() == Unlogged()
    assert sum(account(shipper.cloud.read())) == 1_500


def test_flush_waits_neither_for_an_outage_nor_for_a_full_batch(cloud: Cloud) -> None:
    slow = Shipper(cloud, linger_s=3600)
    assert len(slow.entries("at once")) == 1
    slow.failures = [HttpError(503, "down")]
    slow.print("b\n")
    began = time.monotonic()
    slow.log.flush(FLUSH_S)
    assert time.monotonic() - began < FLUSH_S / 2
