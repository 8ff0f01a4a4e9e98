"""The real agent as a real process: what its program uses is in Cloud Monitoring, and metrics never
disturb it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.support.cloud import Cloud as Google
from tests.integration.agent.support.vm import Vm
from tests.integration.monitoring.cloud import PROJECT, Cloud
from tests.support.stack import eventually
from trainmaster.agent.utilization.time_series import CPU, GPU
from trainmaster_emulators.rest.times import SECOND, rfc3339

METRICS = "instance/attributes/trainmaster-metrics"
BURN = """
    import time
    begin = time.monotonic()
    while time.monotonic() < begin + 8:
        sum(range(200_000))
        time.sleep(0.005)
    print("core", time.process_time() / (time.monotonic() - begin), flush=True)
"""


class Monitoring(Cloud):
    """Cloud Monitoring with this machine's clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server._clock_ns = time.time_ns

    def points(self, metric: str) -> dict[str, list[float]]:
        """Return the values of each series of the last hour by GPU, or under an empty name; none if
        no agent wrote.
        """
        now = time.time_ns()
        interval = {
            "interval_startTime": rfc3339(now - 3600 * SECOND),
            "interval_endTime": rfc3339(now + 60 * SECOND),
        }
        _, body = self.get(filter=f'metric.type = "{metric}"', **interval)
        return {
            series["metric"]["labels"].get("gpu", ""): [
                point["value"]["doubleValue"] for point in series["points"]
            ]
            for series in body.get("timeSeries", ())
        }


@pytest.fixture
def google() -> Iterator[Google]:
    """The metadata server and Pub/Sub."""
    google = Google()
    yield google
    google.close()


@pytest.fixture
def vm(google: Google, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(google, tmp_path)
    vm.configure(project=PROJECT)
    google.set(METRICS, "3600")
    google.direct(attempt=1, incarnation=1)
    yield vm
    vm.power_off()


@pytest.fixture
def monitoring(tmp_path: Path) -> Iterator[Monitoring]:
    monitoring = Monitoring(tmp_path)
    yield monitoring
    monitoring.store.close()


@pytest.mark.slow
def test_core_that_a_program_used_is_reported_at_its_end(
    google: Google, vm: Vm, monitoring: Monitoring
) -> None:
    program = Path(vm.environ["HOME"]) / "nvidia-smi"
    # Of each GPU its number, its use in percent, and how much of its memory is in use.
    program.write_text("#!/bin/sh\nprintf '0, 80, 1, 2\\n1, 0, 1, 2\\n'\n")
    program.chmod(0o755)
    vm.environ["PATH"] = f"{program.parent}:{vm.environ['PATH']}"
    vm.program(BURN)
    with monitoring.serving() as address:
        vm.boot({"TRAINMASTER_MONITORING_ENDPOINT": address})
        core_share = vm.wait_for_number("core ")
        eventually(lambda: monitoring.points(CPU))
    (values,) = monitoring.points(CPU).values()
    cpus = len(os.sched_getaffinity(0))
    assert values[0] * cpus == pytest.approx(core_share, abs=0.15)
    assert monitoring.points(GPU) == {"0": [0.8], "1": [0.0]}


def test_refused_metrics_are_logged_once_and_the_program_completes(
    google: Google, vm: Vm, monitoring: Monitoring
) -> None:
    google.set(METRICS, "0.2")
    monitoring.server.denied = frozenset(["monitoring.timeSeries.create"])
    vm.program("import time\ntime.sleep(3)\nprint('DONE')")
    with monitoring.serving() as address:
        vm.boot({"TRAINMASTER_MONITORING_ENDPOINT": address})
        message = google.wait_for_message("replica-exit", (1, 1))
    assert message.body["exit_status"] == 0
    (line,) = vm.lines(
        "[trainmaster] Cloud Monitoring refuses this machine's resource metrics: HTTP 403"
    )
    assert b"monitoring.timeSeries.create" in line


def test_unavailable_cloud_monitoring_delays_neither_program_nor_exit(
    google: Google, vm: Vm
) -> None:
    google.set(METRICS, "0.2")
    vm.program("print('DONE')")
    vm.boot({"TRAINMASTER_MONITORING_ENDPOINT": "http://127.0.0.1:9"})
    assert google.wait_for_message("replica-exit", (1, 1)).body["exit_status"] == 0
    assert vm.lines("[trainmaster] Cloud Monitoring") == []


@pytest.mark.parametrize("interval", [None, "often"])
def test_agent_without_an_interval_measures_nothing(
    google: Google, vm: Vm, monitoring: Monitoring, interval: str | None
) -> None:
    google.set(METRICS, interval)
    vm.program("print('DONE')")
    with monitoring.serving() as address:
        vm.boot({"TRAINMASTER_MONITORING_ENDPOINT": address})
        google.wait_for_message("replica-exit", (1, 1))
    assert monitoring.points(CPU) == {}
    lines = vm.lines("[trainmaster] Resource metrics are off")
    assert len(lines) == (1 if interval else 0)
