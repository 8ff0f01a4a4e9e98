"""A VM hangs while another VM of the same job is missing for hours, for lack of capacity.

A job without capacity for one VM (a stockout) requests it again with growing pauses. A hang is
found because the VM's agent writes no more points to Cloud Monitoring; the sweep, a scheduled pass
over all jobs, looks for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from tests.unit.flows.test_hung_vms import MINUTE_S, AliveSeries, live
from trainmaster.core.events import VmLost
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import LossCause

A = "us-central1-a"
STOCKOUT_MIN = 5 * 60
"""Minutes after which a test gives up."""


def is_found(world: World, replica_id: ReplicaId) -> bool:
    """Return whether the replica's VM was judged lost because its agent is silent."""
    losses = [entry.event for entry in world.ledger if isinstance(entry.event, VmLost)]
    return any(
        loss.subject.replica_id == replica_id and loss.cause is LossCause.AGENT_SILENT
        for loss in losses
    )


def pass_minute(world: World, series: AliveSeries, *writing: ReplicaId) -> None:
    """Let a minute pass in which the agents of these replicas write points, and sweep."""
    live(world, series, MINUTE_S, *writing)
    world.sweep()
    world.deliver()


def minutes_until(
    condition: Callable[[], bool], world: World, series: AliveSeries, *writing: ReplicaId
) -> int:
    """Return after how many sweeps it is true."""
    for minute in range(1, STOCKOUT_MIN):
        pass_minute(world, series, *writing)
        if condition():
            return minute
    raise AssertionError("never")


def lose(world: World, replica_id: ReplicaId) -> None:
    """The VM is lost, and Google has no other for it."""
    world.fleet.capacity[A] = len(world.vms) - 1
    vm = world.vm(replica_id)
    world.send("maintenance", replica_id, cause="preemption")
    world.fleet.delete(vm)
    world.deliver()


@pytest.mark.parametrize(
    "options",
    [
        {"elastic": {"minReplicas": 1}},
        {"gang": False, "independentReplicas": True},
        {"independentReplicas": True},
    ],
    ids=["elastic", "optional", "partial gang"],
)
def test_hang_in_stockout_is_found_within_three_minutes(options: dict[str, Any]) -> None:
    series = AliveSeries("digits_1")
    world = World(metrics=series)
    world.submit({**a_spec(), "trainmaster": {"zones": [A], **options}})
    world.deliver()
    world.report_all_ready()
    world.deliver()
    live(world, series, 900, CHIEF, WORKER_0, WORKER_1)
    lose(world, WORKER_1)
    for _ in range(5):
        pass_minute(world, series, CHIEF, WORKER_0)
    assert minutes_until(lambda: is_found(world, WORKER_0), world, series, CHIEF) <= 3
    world.check()


def test_hang_in_stockout_before_running_is_found() -> None:
    """Replicas that are judged alone train while another one has no VM yet."""
    series = AliveSeries("digits_1")
    world = World(metrics=series)
    world.fleet.capacity[A] = 1
    world.submit({**a_spec(), "trainmaster": {"zones": [A], "independentReplicas": True}})
    world.deliver()
    world.send("vm-ready", CHIEF)
    live(world, series, 900, CHIEF)
    assert world.state == "PREPARING"
    assert minutes_until(lambda: is_found(world, CHIEF), world, series) <= 3


@pytest.mark.parametrize(
    "options",
    [{"elastic": {"minReplicas": 2}}, {"gang": False, "independentReplicas": True}],
    ids=["elastic", "optional"],
)
def test_sweep_looks_at_a_job_whose_missing_vms_may_not_be_requested_now(
    options: dict[str, Any],
) -> None:
    """No ledger entry is pending then, so nothing else keeps the search going."""
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A], **options}})
    world.deliver()
    world.report_all_ready()
    world.deliver()
    lose(world, WORKER_1)
    for _ in range(60):
        world.wait(60)
        world.sweep()
        world.deliver()
    assert world.store.pending_keys(world.job_id) == ()
    next_at = world.job.placement.next_at
    assert next_at is not None
    assert world.now < next_at
    world.fleet.capacity.clear()
    world.now = next_at
    world.sweep()
    world.deliver()
    assert world.find_vm(WORKER_1) is not None
