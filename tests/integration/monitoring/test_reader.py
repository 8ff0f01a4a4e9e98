"""The reader of Cloud Monitoring, on what the agents send to the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.integration.agent.support.vm import FIRST, NAME, agent_identity
from tests.integration.monitoring.cloud import PROJECT, START, START_NS, Cloud
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.utilization.averages import Report
from trainmaster.agent.utilization.time_series import SeriesOrigin, alive_body, request_body
from trainmaster.core.timeouts import SERIES_MEMORY
from trainmaster.errors import TemporaryError
from trainmaster.flows.provisioning.alive_series import count_alive
from trainmaster.gcp.monitoring_metrics import MonitoringMetrics
from trainmaster.ports.metrics import Label, Metric, MetricQuery, MetricsDeniedError, Reducer

JOB = "digits_1"


def origin_of(worker: int) -> SeriesOrigin:
    """Return whose series worker 0 or 1 writes. The place of a VM's name is its task's index."""
    names = [NAME, FIRST] if worker == 0 else [FIRST, NAME]
    return SeriesOrigin.of(agent_identity(project=PROJECT, vm_names=names))


@pytest.fixture
def reader(cloud: Cloud) -> Iterator[MonitoringMetrics]:
    """The reader, after three minutes of two workers."""
    for minute in (1, 2, 3):
        cloud.now_s = 60 * minute
        for worker, cpu in ((0, 0.1 * minute), (1, 0.2 * minute)):
            report = Report(
                cpu,
                memory=0.5,
                gpus={0: 0.9, 1: 0.3},
                gpu_memory={},
                received=6000 * minute,
                sent=None,
            )
            end_ns = START_NS + 60 * minute * 10**9
            body = request_body(origin_of(worker), IncarnationKey(1, 1), report, START_NS, end_ns)
            cloud.write(*body["timeSeries"])
    with cloud.serving() as address:
        reader = MonitoringMetrics(PROJECT, address)
        yield reader
        reader.close()


def a_query(metric: Metric, **more: object) -> MetricQuery:
    return MetricQuery(JOB, metric, START, START + timedelta(minutes=3), **more)  # type: ignore[arg-type]


def test_raw_points_have_their_labels_and_order(reader: MonitoringMetrics) -> None:
    found = {series.labels[Label.TASK_ID]: series for series in reader.read(a_query(Metric.CPU))}
    assert set(found) == {"worker-0", "worker-1"}
    assert [(point.at, round(point.value, 2)) for point in found["worker-1"].points] == [
        (START + timedelta(minutes=minute), round(0.2 * minute, 2)) for minute in (1, 2, 3)
    ]
    assert found["worker-1"].labels == {
        Label.TASK_ID: "worker-1",
        Label.JOB: JOB,
        Label.TASK_TYPE: "worker",
        Label.ATTEMPT: "1",
        Label.GENERATION: "1",
    }


def test_counters_have_the_start_of_their_count(reader: MonitoringMetrics) -> None:
    (series, _) = reader.read(a_query(Metric.RECEIVED))
    assert [(point.value, point.since) for point in series.points] == [
        (6000.0 * n, START) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("reducer", "last"), [(Reducer.MEAN, 0.45), (Reducer.MIN, 0.3), (Reducer.MAX, 0.6)]
)
def test_replicas_of_a_role_are_reduced(
    reader: MonitoringMetrics, reducer: Reducer, last: float
) -> None:
    query = a_query(Metric.CPU, period_s=60, reducer=reducer, group_by=(Label.TASK_TYPE,))
    (series,) = reader.read(query)
    assert series.labels == {Label.TASK_TYPE: "worker"}
    assert len(series.points) == 3
    assert series.points[-1].value == pytest.approx(last)


def test_bytes_are_read_as_a_rate(reader: MonitoringMetrics) -> None:
    (series,) = reader.read(a_query(Metric.RECEIVED, period_s=60, group_by=(Label.TASK_TYPE,)))
    assert [point.value for point in series.points] == pytest.approx([100.0] * 3)


def test_gpus_of_one_replica_have_a_series_each(reader: MonitoringMetrics) -> None:
    found = reader.read(a_query(Metric.GPU, replica="worker-1", period_s=60, group_by=(Label.GPU,)))
    assert {series.labels[Label.GPU]: series.points[0].value for series in found} == {
        "0": 0.9,
        "1": 0.3,
    }


def test_metric_that_was_never_written_has_no_series(reader: MonitoringMetrics) -> None:
    assert reader.read(a_query(Metric.GPU_MEMORY)) == []
    other_job = MetricQuery("other_1", Metric.CPU, START, START + timedelta(minutes=3))
    assert reader.read(other_job) == []


def test_agents_that_are_alive_are_counted_by_job_and_found_by_machine(cloud: Cloud) -> None:
    """Two workers write; worker 0 stops after 150 seconds."""
    for second in range(0, 300, 30):
        cloud.now_s = second
        at = (START + timedelta(seconds=second)).isoformat()
        for worker in (0, 1) if second <= 150 else (1,):
            cloud.write(*alive_body(origin_of(worker), at)["timeSeries"])
    with cloud.serving() as address:
        reader = MonitoringMetrics(PROJECT, address)
        now = START + timedelta(seconds=290)
        assert count_alive(reader, now) == {JOB: 1}
        assert count_alive(reader, now, SERIES_MEMORY) == {JOB: 2}
        last = {
            series.labels[Label.TASK_ID]: series.points[-1].at
            for series in reader.read(MetricQuery(JOB, Metric.ALIVE, now - SERIES_MEMORY, now))
        }
        assert last == {
            "worker-0": START + timedelta(seconds=150),
            "worker-1": START + timedelta(seconds=270),
        }
        reader.close()


def test_missing_permission_names_the_role(reader: MonitoringMetrics, cloud: Cloud) -> None:
    cloud.server.denied = frozenset(["monitoring.timeSeries.list"])
    with pytest.raises(
        MetricsDeniedError, match=r"roles/monitoring\.viewer on the project my-project"
    ) as denied:
        reader.read(a_query(Metric.CPU))
    assert "monitoring.timeSeries.list" in str(denied.value)


def test_monitoring_that_does_not_answer_is_a_temporary_error() -> None:
    reader = MonitoringMetrics(PROJECT, "http://127.0.0.1:9")
    with pytest.raises(TemporaryError, match="read Cloud Monitoring"):
        reader.read(a_query(Metric.CPU))
    reader.close()
