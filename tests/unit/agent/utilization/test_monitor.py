"""The thread that measures the use of the machine and reports it to Cloud Monitoring, with an
interval of a fraction of a second.

A report has one point of each time series. The key, of the program that runs, is None before the
first program.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.agent.support.vm import agent_identity
from tests.support.stack import eventually
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey, SliceHost
from trainmaster.agent.utilization import monitor as module
from trainmaster.agent.utilization.gpus import GpuReading
from trainmaster.agent.utilization.machine import MachineReading
from trainmaster.agent.utilization.monitor import Sources, UtilizationMonitor
from trainmaster.agent.utilization.network import Traffic
from trainmaster.agent.utilization.report_queue import REFUSALS_MAX, ReportQueue
from trainmaster.agent.utilization.time_series import CPU, SeriesOrigin

WITHIN_S = 60.0


class Bench:
    """A monitor whose machine uses half of its only CPU, and what it sent and logged."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.missing: list[tuple[int, str]] = []
        """Number of reports that were not sent, and why."""
        self.errors: list[Exception] = []
        """Raised by the next posts."""
        self.key: IncarnationKey | None = IncarnationKey(2, 1)
        self.looks = 0
        """How often the monitor has asked for the key."""
        self.failure: Exception | None = None
        """Raised by each reading."""
        self.reads = 0

    def start(self, interval_s: float) -> UtilizationMonitor:
        sources = Sources(
            self._read_machine,
            lambda: [GpuReading(index=1, utilization=0.5, memory=None)],
            lambda: Traffic(received=10, sent=20),
        )
        origin = SeriesOrigin.of(agent_identity())
        queue = ReportQueue(
            self._post, self.lines.append, lambda count, text: self.missing.append((count, text))
        )
        self.monitor = UtilizationMonitor(
            origin, sources, queue, self._find_key, self.lines.append, interval_s
        )
        self.thread = threading.Thread(target=self.monitor.run, daemon=True)
        self.thread.start()
        return self.monitor

    def stop(self) -> None:
        self.monitor.is_off = True
        self.monitor.finish_interval()
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()

    def _find_key(self) -> IncarnationKey | None:
        self.looks += 1
        return self.key

    def _read_machine(self) -> MachineReading:
        if self.failure:
            raise self.failure
        self.reads += 1
        return MachineReading(cpu_s=self.reads * 0.01, cpus=1, memory=0.25)

    def _post(self, body: bytes) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.bodies.append(json.loads(body))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.stop()


def test_report_has_a_point_for_each_series(bench: Bench) -> None:
    bench.start(0.2)
    eventually(lambda: len(bench.bodies) >= 2)
    series = {entry["metric"]["type"]: entry for entry in bench.bodies[0]["timeSeries"]}
    assert {name.partition("/training/")[2] for name in series} == {
        "cpu/utilization",
        "memory/utilization",
        "accelerator/utilization",
        "network/received_bytes_count",
        "network/sent_bytes_count",
    }
    assert all(len(entry["points"]) == 1 for entry in series.values())
    assert series[CPU]["metric"]["labels"] == {
        "attempt": "2",
        "generation": "1",
        "task_type": "worker",
    }
    assert series[CPU]["resource"] == {
        "type": "generic_task",
        "labels": {
            "project_id": "p",
            "location": "us-central1",
            "namespace": "trainmaster",
            "job": "digits_1",
            "task_id": "worker-1",
        },
    }


def test_nothing_is_measured_before_the_first_program(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_POLL_S", 0.01)
    bench.key = None
    bench.start(0.05)
    eventually(lambda: bench.looks > 10)
    assert bench.reads == 0
    bench.key = IncarnationKey(1, 1)
    eventually(lambda: bench.bodies)


def test_end_of_the_program_sends_what_was_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job of less than an interval would leave nothing."""
    monkeypatch.setattr(module, "DISTANCE_MIN_S", 0.0)
    monitor = bench.start(3600)

    def has_sent() -> bool:
        monitor.finish_interval()
        return len(bench.bodies) > 1

    eventually(has_sent)


def test_process_ends_after_the_report_of_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled job has no exit that says how far its program came: its VM shuts down."""
    monkeypatch.setattr(module, "DISTANCE_MIN_S", 0.3)
    monitor = bench.start(3600)
    eventually(lambda: bench.reads)
    assert bench.bodies == []
    monitor.finish_interval()
    monitor.await_last_report()
    assert len(bench.bodies) == 1
    monkeypatch.setattr(module, "LAST_REPORT_S", 600.0)
    before = time.monotonic()
    monitor.await_last_report()
    assert time.monotonic() - before < 300


def test_end_of_a_program_that_started_since_the_last_look_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may start and end between two looks for the first one."""
    monkeypatch.setattr(module, "DISTANCE_MIN_S", 0.3)
    bench.key = None
    monitor = bench.start(3600)
    eventually(lambda: bench.looks)
    bench.key = IncarnationKey(1, 1)
    monitor.finish_interval()
    monitor.await_last_report()
    assert len(bench.bodies) == 1


def test_process_does_not_wait_for_a_report_that_nothing_sends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_REPORT_S", 600.0)
    bench.failure = OSError("no such file")
    monitor = bench.start(3600)
    bench.thread.join(WITHIN_S)
    monitor.finish_interval()
    before = time.monotonic()
    monitor.await_last_report()
    assert time.monotonic() - before < 300


def test_points_are_never_closer_than_the_api_accepts(bench: Bench) -> None:
    monitor = bench.start(3600)
    for _ in range(20):
        monitor.finish_interval()
    bench.stop()
    assert bench.bodies == []


@pytest.mark.parametrize("status", [401, 403, 404, 400])
def test_refusals_are_logged_once_and_turn_metrics_off(bench: Bench, status: int) -> None:
    bench.errors = [HttpError(status, '{\n "error": "Permission denied"\n}')] * REFUSALS_MAX
    bench.start(0.05)
    bench.thread.join(WITHIN_S)
    assert bench.monitor.is_off
    (line,) = bench.lines
    assert line.startswith("Cloud Monitoring refuses this machine's resource metrics: HTTP ")
    assert "\n" not in line
    assert bench.bodies == []
    assert [count for count, _ in bench.missing] == [REFUSALS_MAX]


def test_permission_that_is_new_is_tried_again(bench: Bench) -> None:
    bench.errors = [HttpError(403, "no")] * (REFUSALS_MAX - 1)
    bench.start(0.05)
    eventually(lambda: bench.bodies)
    assert not bench.monitor.is_off


@pytest.mark.parametrize("status", [0, 429, 503])
def test_reports_that_an_unavailable_service_missed_are_sent_later_in_order(
    bench: Bench, status: int
) -> None:
    bench.errors = [HttpError(status, "later")] * (2 * REFUSALS_MAX)
    bench.start(0.05)
    eventually(lambda: len(bench.bodies) > 2 * REFUSALS_MAX)
    ends = [body["timeSeries"][0]["points"][0]["interval"]["endTime"] for body in bench.bodies]
    assert ends == sorted(set(ends))
    assert bench.lines == []


def test_refused_series_is_named_once_and_leaves_all_others_on(bench: Bench) -> None:
    summary = {"error": {"details": [{"totalPointCount": 3, "successPointCount": 2}]}}
    error = HttpError(400, "could not be written: timeSeries[2]", json.dumps(summary))
    bench.errors = [error] * (2 * REFUSALS_MAX)
    bench.start(0.05)
    eventually(lambda: bench.bodies)
    assert not bench.monitor.is_off
    (line,) = bench.lines
    assert line.startswith(
        "Cloud Monitoring refuses series of this machine: HTTP 400: could not be"
    )


@pytest.mark.parametrize(
    "error", [FileNotFoundError("/proc/stat"), ValueError("x"), ZeroDivisionError("a bug")]
)
def test_error_turns_metrics_off_and_not_the_agent(bench: Bench, error: Exception) -> None:
    bench.failure = error
    bench.start(0.05)
    bench.thread.join(WITHIN_S)
    assert bench.monitor.is_off
    (line,) = bench.lines
    assert type(error).__name__ in line


def test_hosts_of_a_slice_have_series_of_their_own() -> None:
    labels = SeriesOrigin.of(agent_identity(host=SliceHost(3, ("a", "b")))).labels
    assert labels == {"task_type": "worker", "generation": "1", "host": "3"}
