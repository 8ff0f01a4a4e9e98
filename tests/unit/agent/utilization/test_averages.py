from __future__ import annotations

import pytest

from trainmaster.agent.utilization.averages import Averages, Sample
from trainmaster.agent.utilization.gpus import GpuReading
from trainmaster.agent.utilization.machine import MachineReading
from trainmaster.agent.utilization.network import Traffic


def a_sample(
    at: float,
    cpu_s: float = 0.0,
    memory: float = 0.5,
    gpus: tuple[GpuReading, ...] = (),
    traffic: Traffic | None = None,
) -> Sample:
    return Sample(at, MachineReading(cpu_s, 4, memory), gpus, traffic)


def test_cpu_is_the_share_of_all_cpus_over_the_interval() -> None:
    averages = Averages(a_sample(100, cpu_s=50))
    averages.add(a_sample(115, cpu_s=50))
    averages.add(a_sample(160, cpu_s=110))
    report = averages.take()
    assert report is not None
    assert report.cpu == 60 / (60 * 4)


def test_memory_and_gpus_are_means_of_their_samples() -> None:
    averages = Averages(a_sample(0))
    averages.add(
        a_sample(
            15,
            memory=0.2,
            gpus=(
                GpuReading(index=0, utilization=1.0, memory=0.5),
                GpuReading(index=1, utilization=None, memory=0.25),
            ),
        )
    )
    averages.add(a_sample(30, memory=0.4, gpus=(GpuReading(index=0, utilization=0.5, memory=0.7),)))
    report = averages.take()
    assert report is not None
    assert report.memory == pytest.approx(0.3)
    assert report.gpus == {0: 0.75}
    assert report.gpu_memory == pytest.approx({0: 0.6, 1: 0.25})


def test_intervals_follow_each_other_without_overlap() -> None:
    averages = Averages(a_sample(0))
    averages.add(a_sample(10, cpu_s=40))
    first = averages.take()
    assert averages.take() is None
    averages.add(a_sample(20, cpu_s=40))
    second = averages.take()
    assert first is not None
    assert second is not None
    assert (first.cpu, second.cpu) == (1.0, 0.0)


def test_bytes_are_counted_from_the_first_sample() -> None:
    averages = Averages(a_sample(0, traffic=Traffic(received=1000, sent=100)))
    totals = []
    for at in (15, 30):
        averages.add(a_sample(at, traffic=Traffic(1000 + at, 100 + 2 * at)))
        report = averages.take()
        assert report is not None
        totals.append((report.received, report.sent))
    assert totals == [(15, 30), (30, 60)]


def test_counter_that_went_back_is_not_reported() -> None:
    averages = Averages(a_sample(0, traffic=Traffic(received=1000, sent=100)))
    averages.add(a_sample(15, traffic=Traffic(received=0, sent=150)))
    report = averages.take()
    assert report is not None
    assert (report.received, report.sent) == (None, 50)


def test_traffic_of_a_shared_machine_is_not_reported() -> None:
    averages = Averages(a_sample(0))
    averages.add(a_sample(15))
    report = averages.take()
    assert report is not None
    assert (report.received, report.sent) == (None, None)
