"""Reading a log that grows: nothing lost, nothing twice, nothing out of its VM's order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.agent.control.vm_config import IncarnationKey
from shared.agent.google_http.google_api import GoogleApi
from shared.agent.google_http.metadata_server import MetadataServer
from shared.agent.reporting.cloud_log import CloudLog, LogOrigin
from shared.agent.reporting.log_buffer import LogBuffer
from shared.agent.reporting.serial_console import Stream
from shared.core.reporting.job_log import ServiceLine, Severity
from shared.gcp import clients
from shared.gcp.job_log import CloudJobLog
from shared.gcp.log_entries import LogEntries
from shared.presentation.log_reader import LogReader
from tests.integration.logging.cloud import LOG, PROJECT, Cloud, an_entry
from tests.support.jobs import START


def of_vm(text: str, at_s: float, vm: str, task: str = "worker-replica-0") -> dict[str, object]:
    labels = {
        "ml.googleapis.com/job_id": "digits_1",
        "ml.googleapis.com/task_name": task,
        **({"trainmaster/vm": vm} if vm else {}),
    }
    return an_entry(text, at_s + 1e-9, labels=labels, insertId=f"{vm}-{text}")


def reader_of(cloud: Cloud, page_size: int) -> LogReader:
    def page(text: str, token: str) -> tuple[list[dict[str, object]], str]:
        request = {"resourceNames": [f"projects/{PROJECT}"], "filter": text, "pageSize": page_size, "pageToken": token}
        status, said = cloud.post("list", request)
        assert status == 200, said
        return said.get("entries", []), said.get("nextPageToken", "")

    return LogReader(page, "digits_1")


@pytest.fixture
def reader(cloud: Cloud) -> LogReader:
    """By small pages."""
    return reader_of(cloud, 3)


def new(reader: LogReader) -> list[str]:
    return [line.message for page in reader.read_new() for line in page]


def test_each_look_shows_what_is_new_though_vms_come_late_and_others_are_silent(
    cloud: Cloud, reader: LogReader
) -> None:
    cloud.write(of_vm("a1", 1, "a"), of_vm("b1", 2, "b", "ps-replica-0"), of_vm("c1", 1, "c"))
    assert sorted(new(reader)) == ["a1", "b1", "c1"]
    assert new(reader) == []
    cloud.write(of_vm("a2", 50, "a"), of_vm("a3", 51, "a"))
    assert new(reader) == ["a2", "a3"]
    cloud.write(of_vm("c2", 20, "c"), of_vm("c3", 21, "c"), of_vm("d1", 19, "d"))
    assert new(reader) == ["d1", "c2", "c3"], "later than its neighbours', and from a VM never heard of"
    assert new(reader) == []


def test_the_services_lines_come_once_though_they_are_written_out_of_order(cloud: Cloud, reader: LogReader) -> None:
    cloud.write(of_vm("s1", 10, "", "service"), of_vm("a1", 10, "a"))
    assert sorted(new(reader)) == ["a1", "s1"]
    cloud.write(of_vm("s0", 8, "", "service"), of_vm("a2", 11, "a"))
    assert new(reader) == ["s0", "a2"]
    assert new(reader) == []


def test_a_job_of_more_vms_than_a_filter_holds_is_read_all_the_same(cloud: Cloud) -> None:
    reader = reader_of(cloud, 100)
    for round_s in range(3):
        cloud.write(*[of_vm(f"{vm}-{round_s}", round_s + vm / 1000, f"vm{vm}") for vm in range(250)])
        assert len(reader.filter(None)) < 20_000
        assert new(reader) == [f"{vm}-{round_s}" for vm in range(250)]


def test_another_jobs_lines_and_those_of_a_later_time_are_not_read(cloud: Cloud, reader: LogReader) -> None:
    entry = of_vm("theirs", 1, "x")
    cloud.write(
        {**entry, "labels": {"ml.googleapis.com/job_id": "digits_12"}}, of_vm("a1", 1, "a"), of_vm("a2", 9, "a")
    )
    until = START.replace(year=2026, month=11, day=21, hour=3, minute=0, second=5)
    assert [line.message for page in reader.read_new(until) for line in page] == ["a1"]
    assert new(reader) == ["a2"]


# At full speed: four VMs, as many threads as they have, over HTTP.

VMS, LINES_A_SECOND, SECONDS = 4, 1000, 6


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    cloud = Cloud(tmp_path, clock_ns=time.time_ns)
    with cloud.serving() as address:
        yield address
    cloud.entries.close()


class Vm:
    """Prints so many lines a second in bursts, as programs do, through the real shipping."""

    def __init__(self, number: int, address: str) -> None:
        google = GoogleApi(address, "", MetadataServer("127.0.0.1:9"))
        origin = LogOrigin(LOG, PROJECT, "us-central1", "digits_1", f"worker-replica-{number}", "", f"{number}{number}")
        self.log = CloudLog(
            origin,
            lambda body: google.call("/v2/entries:write", timeout=60, body=body),
            LogBuffer(),
            lambda: IncarnationKey(1, 1),
            print,
        )
        threading.Thread(target=self.log.run, daemon=True).start()
        self.thread = threading.Thread(target=self._print, args=(number,))
        self.thread.start()

    def _print(self, number: int) -> None:
        dice = random.Random(number)  # noqa: S311 - spreads writes
        began, printed = time.monotonic(), 0
        while printed < LINES_A_SECOND * SECONDS:
            due = min(LINES_A_SECOND * SECONDS, int((time.monotonic() - began) * LINES_A_SECOND) + 1)
            if due > printed:
                self.log.put(Stream.STDOUT, b"".join(b"%d\n" % nth for nth in range(printed, due)))
                printed = due
            time.sleep(dice.uniform(0.001, 0.05))
        self.log.flush(60)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_replicas_of_a_thousand_lines_a_second_are_followed_without_loss_or_disorder(served: str) -> None:
    logging = LogEntries(PROJECT, served)
    service = CloudJobLog(clients.logging_client(PROJECT, served, timeout_s=60))
    reader = LogReader(logging.page, "digits_1")
    seen: dict[str, list[str]] = {}
    vms = [Vm(number, served) for number in range(VMS)]
    said = 0
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        were_done = not any(vm.thread.is_alive() for vm in vms)
        if not were_done:
            now = datetime.now(UTC)
            service.write([ServiceLine("digits_1", f"service-{said}", now, Severity.INFO, f"s{said}")])
            said += 1
        something = False
        for page in reader.read_new():
            something = True
            for line in page:
                seen.setdefault(line.task, []).append(line.message)
        if were_done and not something:
            break
        time.sleep(0.2)
    expected = [str(nth) for nth in range(LINES_A_SECOND * SECONDS)]
    assert seen.pop("service") == [f"s{nth}" for nth in range(said)]
    assert set(seen) == {f"worker-replica-{number}" for number in range(VMS)}
    for task, lines in seen.items():
        assert lines == expected, task

    logging.close()
