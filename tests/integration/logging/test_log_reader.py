"""Reading a growing log: every line once, and the lines of each VM in order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.logging.cloud import LOG, PROJECT, Cloud, an_entry
from tests.integration.logging.shipper import FLUSH_S, run_in_daemon
from tests.support.jobs import START
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.cloud_log import BEHIND, CloudLog
from trainmaster.agent.reporting.log_buffer import LogBuffer
from trainmaster.agent.reporting.log_origin import LogOrigin
from trainmaster.agent.reporting.serial_console import Loss, Stream
from trainmaster.core.reporting.job_log import ServiceLine, Severity
from trainmaster.gcp.job_log import CloudJobLog
from trainmaster.gcp.log_entries import LogEntries
from trainmaster.presentation.log_reader import (
    BEHIND_LABEL,
    MISSING_LINES,
    MISSING_MEASUREMENTS,
    MISSING_REPORTS,
    PATIENCE_S,
    LogReader,
)


def vm_entry(text: str, at_s: float, vm: str, task: str = "worker-replica-0") -> dict[str, Any]:
    labels = {
        "ml.googleapis.com/job_id": "digits_1",
        "ml.googleapis.com/task_name": task,
    }
    if vm:
        labels["trainmaster/vm"] = vm
    return an_entry(text, at_s + 1e-9, labels=labels, insertId=f"{vm}-{text}")


def reader_of(cloud: Cloud, page_size: int) -> LogReader:
    def page(text: str, token: str) -> tuple[list[dict[str, object]], str]:
        request = {
            "resourceNames": [f"projects/{PROJECT}"],
            "filter": text,
            "pageSize": page_size,
            "pageToken": token,
        }
        status, content = cloud.post("list", request)
        assert status == 200, content
        return content.get("entries", []), content.get("nextPageToken", "")

    return LogReader(page, "digits_1")


@pytest.fixture
def reader(cloud: Cloud) -> LogReader:
    """Return a reader with pages of three entries, so that a few entries need several."""
    return reader_of(cloud, 3)


def read_new(reader: LogReader) -> list[str]:
    return [line.message for page in reader.read_new() for line in page]


def test_read_new_returns_new_lines_though_vms_differ_in_delay(
    cloud: Cloud, reader: LogReader
) -> None:
    cloud.write(
        vm_entry("a1", 1, "a"), vm_entry("b1", 2, "b", "ps-replica-0"), vm_entry("c1", 1, "c")
    )
    assert sorted(read_new(reader)) == ["a1", "b1", "c1"]
    assert read_new(reader) == []
    cloud.write(vm_entry("a2", 50, "a"), vm_entry("a3", 51, "a"))
    assert read_new(reader) == ["a2", "a3"]
    cloud.write(vm_entry("c2", 20, "c"), vm_entry("c3", 21, "c"), vm_entry("d1", 19, "d"))
    assert read_new(reader) == ["d1", "c2", "c3"], (
        "lines that arrive later than those of other VMs, and the first line of a VM"
    )
    assert read_new(reader) == []


def behind(text: str, at_s: float, oldest_s: float) -> dict[str, Any]:
    """Return a line of VM a that was sent while the one of `oldest_s` was not stored."""
    entry = vm_entry(text, at_s, "a")
    labels = dict(entry["labels"])
    labels[BEHIND_LABEL] = vm_entry(text="", at_s=oldest_s, vm="a")["timestamp"]
    return {**entry, "labels": labels}


def test_labels_are_those_of_the_agent() -> None:
    assert BEHIND_LABEL == BEHIND
    assert {loss.value for loss in Loss} == {
        MISSING_LINES,
        MISSING_MEASUREMENTS,
        MISSING_REPORTS,
    }


@pytest.mark.parametrize("page_size", [2, 100])
def test_lines_wait_for_earlier_ones_of_their_vm_that_arrive_later(
    cloud: Cloud, page_size: int
) -> None:
    at_s = [0.0]
    reader = reader_of(cloud, page_size)
    reader.clock = lambda: at_s[0]
    cloud.write(vm_entry("a1", 1, "a"))
    assert read_new(reader) == ["a1"]
    cloud.write(*[behind(f"a{second}", second, 2) for second in (5, 6, 7)], vm_entry("b9", 9, "b"))
    assert read_new(reader) == ["b9"]
    cloud.write(*[vm_entry(f"a{second}", second, "a") for second in (2, 3, 4)])
    assert read_new(reader) == ["a2", "a3", "a4"]
    cloud.write(behind("a10", at_s=10, oldest_s=8))
    assert read_new(reader) == ["a5", "a6", "a7"], "all lines before the eighth second are there"
    cloud.write(vm_entry("a8", 8, "a"), vm_entry("a11", 11, "a"))
    assert read_new(reader) == ["a8", "a10", "a11"]
    cloud.write(behind("a13", at_s=13, oldest_s=12))
    assert read_new(reader) == []
    at_s[0] += PATIENCE_S
    assert read_new(reader) == ["a13"], "the line of the twelfth second never arrives"


def test_log_that_is_not_followed_waits_for_no_line(cloud: Cloud, reader: LogReader) -> None:
    cloud.write(behind("a3", at_s=3, oldest_s=2))
    assert [line.message for page in reader.read_new(is_followed=False) for line in page] == ["a3"]


def test_history_is_read_with_one_query_and_later_lines_follow(cloud: Cloud) -> None:
    filters: list[str] = []

    def page(text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        filters.append(text)
        return source.read_page(text, token)

    source = reader_of(cloud, 3)
    reader = LogReader(page, "digits_1", since="2026-11-21T03:00:01Z")
    cloud.write(
        *[vm_entry(f"{vm}{second}", second, vm) for second in range(8) for vm in ("a", "b")]
    )
    before = START.replace(second=6)
    history = [line.message for lines in reader.read_history(before) for line in lines]
    assert sorted(history) == sorted(f"{vm}{second}" for second in range(1, 6) for vm in ("a", "b"))
    assert len(set(filters)) == 1
    assert len(filters) == 4, "ten lines in pages of three"
    cloud.write(vm_entry("a6.5", 6.5, "a"))
    assert sorted(read_new(reader)) == ["a6", "a6.5", "a7", "b6", "b7"]
    assert read_new(reader) == []


def test_service_lines_are_read_once_though_written_out_of_order(
    cloud: Cloud, reader: LogReader
) -> None:
    cloud.write(vm_entry("s1", 10, vm="", task="service"), vm_entry("a1", 10, "a"))
    assert sorted(read_new(reader)) == ["a1", "s1"]
    cloud.write(vm_entry("s0", 8, vm="", task="service"), vm_entry("a2", 11, "a"))
    assert read_new(reader) == ["s0", "a2"]
    assert read_new(reader) == []


def test_job_with_more_vms_than_a_filter_holds_is_read_completely(cloud: Cloud) -> None:
    reader = reader_of(cloud, 100)
    for round_s in range(3):
        cloud.write(
            *[vm_entry(f"{vm}-{round_s}", round_s + vm / 1000, f"vm{vm}") for vm in range(250)]
        )
        assert len(reader.filter(None)) < 20_000
        assert read_new(reader) == [f"{vm}-{round_s}" for vm in range(250)]


def test_lines_of_other_jobs_and_later_times_are_not_read(cloud: Cloud, reader: LogReader) -> None:
    entry = vm_entry("theirs", 1, "x")
    cloud.write(
        {**entry, "labels": {"ml.googleapis.com/job_id": "digits_12"}},
        vm_entry("a1", 1, "a"),
        vm_entry("a2", 9, "a"),
    )
    until = START.replace(second=5)
    assert [line.message for page in reader.read_new(until) for line in page] == ["a1"]
    assert read_new(reader) == ["a2"]


# Four VMs at full speed, each with its own thread, over HTTP.

VMS, LINES_PER_SECOND, SECONDS = 4, 1000, 6


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    cloud = Cloud(tmp_path, clock_ns=time.time_ns)
    with cloud.serving() as address:
        yield address
    cloud.entries.close()


class Vm:
    """Prints lines in bursts, as programs do, and sends them by the agent's own CloudLog."""

    def __init__(self, number: int, address: str) -> None:
        google = GoogleApi(address, real="", metadata=MetadataServer("127.0.0.1:9"))
        origin = LogOrigin(
            LOG,
            PROJECT,
            "us-central1",
            "digits_1",
            f"worker-replica-{number}",
            trial_id="",
            instance_id=f"{number}{number}",
        )
        self.log = CloudLog(
            origin,
            lambda body: google.call("/v2/entries:write", timeout=60, body=body),
            LogBuffer(),
            lambda: IncarnationKey(1, 1),
            print,
        )
        self.log.start(run_in_daemon)
        self.thread = threading.Thread(target=self._print, args=(number,))
        self.thread.start()

    def _print(self, number: int) -> None:
        generator = random.Random(number)  # noqa: S311 - only spreads the writes
        started, printed = time.monotonic(), 0
        while printed < LINES_PER_SECOND * SECONDS:
            due = min(
                LINES_PER_SECOND * SECONDS, int((time.monotonic() - started) * LINES_PER_SECOND) + 1
            )
            if due > printed:
                self.log.put(
                    Stream.STDOUT, b"".join(b"%d\n" % number for number in range(printed, due))
                )
                printed = due
            time.sleep(generator.uniform(0.001, 0.05))
        self.log.flush(FLUSH_S)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.heavy(
    fact="lines of four fast VMs are read without loss, in order",
    quick="delays and orders of fewer lines in the same module",
)
def test_lines_of_four_fast_vms_are_read_without_loss_in_order(served: str) -> None:
    logging = LogEntries(PROJECT, served)
    service = CloudJobLog(PROJECT, served)
    reader = LogReader(logging.page, "digits_1")
    seen: dict[str, list[str]] = {}
    vms = [Vm(number, served) for number in range(VMS)]
    service_lines = 0
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        were_done = not any(vm.thread.is_alive() for vm in vms)
        if not were_done:
            now = datetime.now(UTC)
            service.write(
                [
                    ServiceLine(
                        "digits_1",
                        f"service-{service_lines}",
                        now,
                        Severity.INFO,
                        f"s{service_lines}",
                    )
                ]
            )
            service_lines += 1
        has_new = False
        for page in reader.read_new():
            has_new = True
            for line in page:
                seen.setdefault(line.task, []).append(line.message)
        if were_done and not has_new:
            break
        time.sleep(0.2)
    expected = [str(number) for number in range(LINES_PER_SECOND * SECONDS)]
    assert seen.pop("service") == [f"s{number}" for number in range(service_lines)]
    assert set(seen) == {f"worker-replica-{number}" for number in range(VMS)}
    for task, lines in seen.items():
        assert lines == expected, task

    logging.close()


def test_page_of_the_newest_entries_has_no_more_than_its_limit(cloud: Cloud) -> None:
    cloud.write(*[vm_entry(f"a{second}", second, "a") for second in range(5)])
    with cloud.serving() as address:
        entries = LogEntries(PROJECT, address)
        found, token = entries.page(
            'labels."ml.googleapis.com/job_id"="digits_1"', newest_first=True, limit=2
        )
        entries.close()
    assert [entry["insertId"] for entry in found] == ["a-a4", "a-a3"]
    assert token
