"""A VM that hangs is found by its series in Cloud Monitoring and by its heartbeat, a guest
attribute.

The agent writes both. Every minute, `vm_check` counts the series of all jobs with one call, and
requests a reconciliation of a job if too few have a recent point. The reconciliation reads the
heartbeats. A VM that hangs is replaced by one of the next generation; generations count from 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import TemporaryError
from trainmaster.flows.provisioning import vm_check
from trainmaster.messaging import topics
from trainmaster.ports.metrics import (
    Label,
    MetricPoint,
    MetricQuery,
    MetricsDeniedError,
    MetricSeries,
    Reducer,
)

GANG = (CHIEF, WORKER_0, WORKER_1)
MINUTE_S = 60.0


@dataclass
class AliveSeries:
    """Implements `trainmaster.ports.MetricReader` with the last point of each series."""

    job_id: str
    last: dict[tuple[ReplicaId, int], datetime] = field(default_factory=dict)
    """Replica and generation of its VM → time of its last point."""
    error: Exception | None = None
    queries: list[MetricQuery] = field(default_factory=list)

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        self.queries.append(query)
        if self.error:
            raise self.error
        seen = {key: at for key, at in self.last.items() if query.start < at <= query.end}
        if query.reducer is Reducer.COUNT:
            counts = Counter(self.job_id for _ in seen)
            return [
                MetricSeries({Label.JOB: job_id}, (MetricPoint(query.end, count),))
                for job_id, count in counts.items()
            ]
        return [
            MetricSeries(
                {Label.TASK_ID: str(replica), Label.GENERATION: str(generation)},
                (MetricPoint(at, 1.0),),
            )
            for (replica, generation), at in seen.items()
        ]


@pytest.fixture
def series() -> AliveSeries:
    return AliveSeries("")


@pytest.fixture
def world(series: AliveSeries) -> World:
    world = World(metrics=series)
    series.job_id = world.job_id
    world.start_running()
    world.deliver()
    return world


def live(
    world: World, series: AliveSeries, seconds: float, *replicas: ReplicaId, step_s: float = 30.0
) -> None:
    """Let the agents of these replicas write heartbeats and points of their series for `seconds`,
    every `step_s`.

    The agents of the other replicas write nothing.
    """
    for _ in range(round(seconds / step_s)):
        world.wait(step_s)
        for replica_id in replicas:
            world.fleet.beat(vm_name(world.job_id, replica_id))
            series.last[replica_id, world.replica(replica_id).vm_generation] = world.now


def check(world: World) -> list[str]:
    """Let `vm_check` run, and deliver what it requests. Return the topics of the requests."""
    vm_check.handle(world.fleet_deps, world.deps)
    messages = world.bus.drain()
    for message in messages:
        world.bus.publish(message.topic, message.data, message.attributes)
    world.deliver()
    return [message.topic for message in messages]


def generations(world: World) -> list[int]:
    """Return the generations of the VMs of chief, worker 0 and worker 1."""
    return [world.replica(replica_id).vm_generation for replica_id in GANG]


def test_vm_that_hangs_is_replaced_within_two_minutes_and_a_half(
    world: World, series: AliveSeries
) -> None:
    live(world, series, 600, *GANG)
    hung_at = world.now
    while generations(world) == [1, 1, 1]:
        live(world, series, MINUTE_S, CHIEF, WORKER_1)
        check(world)
    assert generations(world) == [1, 2, 1]
    assert world.now - hung_at <= timedelta(seconds=150)


def test_healthy_job_costs_one_call_a_minute_and_no_reconciliation(
    world: World, series: AliveSeries
) -> None:
    live(world, series, 600, *GANG)
    series.queries.clear()
    assert check(world) == []
    assert len(series.queries) == 1


@pytest.mark.parametrize(
    "error", [TemporaryError("late"), MetricsDeniedError("no role")], ids=["unreachable", "denied"]
)
def test_series_that_cannot_be_read_are_no_evidence(
    world: World, series: AliveSeries, error: Exception
) -> None:
    live(world, series, 300, *GANG)
    series.error = error
    world.wait(300)
    assert check(world) == []
    world.provision()
    assert generations(world) == [1, 1, 1]


def test_job_whose_agents_write_no_series_is_not_reconciled_for_it(world: World) -> None:
    """All writes of these agents to Cloud Monitoring fail."""
    world.wait(600)
    assert check(world) == []


def test_series_that_are_late_for_all_jobs_end_nothing_while_heartbeats_arrive(
    world: World, series: AliveSeries
) -> None:
    live(world, series, 300, *GANG)
    for _ in range(10):
        world.wait(MINUTE_S)
        for replica_id in GANG:
            world.fleet.beat(vm_name(world.job_id, replica_id))
        check(world)
    assert generations(world) == [1, 1, 1]


def test_points_that_another_program_writes_hide_a_hang(world: World, series: AliveSeries) -> None:
    live(world, series, 300, *GANG)
    for _ in range(10):
        live(world, series, MINUTE_S, CHIEF, WORKER_1)
        series.last[WORKER_0, 1] = world.now
        assert check(world) == []
    assert generations(world) == [1, 1, 1]


def test_series_that_ended_ends_no_vm_whose_heartbeat_is_fresh(
    world: World, series: AliveSeries
) -> None:
    live(world, series, 300, *GANG)
    series.last[WORKER_0, 1] = world.now - timedelta(minutes=5)
    assert check(world) == [topics.PROVISION], "the heartbeat has to be read"
    assert generations(world) == [1, 1, 1]
