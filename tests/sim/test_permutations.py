"""Guarantees for events of agents that arrive in any order, and any number of times.

1. A repeated event changes nothing: the state stays equal, including counters and versions.
2. Events of different replicas that do not depend on each other (ready, completed, lost) may arrive
   in any order. The round ends for the same reason and the same replicas are charged. If all events
   are of one kind, the whole state is the same, except for the moments at which changes were
   stored. (With other kinds, the order decides what is left to do: a replica that completed before
   its round ended has no VM left and gets the next one, one that completes afterwards reports it
   from its VM; an agent that was ready before its round ended is ready for the next one only when
   it says so again.)
3. Events of an earlier incarnation change nothing after a later one has been ordered, whenever they
   arrive.

The order of failures matters, because the replica that failed first is charged, and because a job
may end before later events arrive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId

AgentEvent = tuple[str, Any, dict[str, object]]
"""Kind of event, replica, details."""

REPLICAS = (CHIEF, WORKER_0, WORKER_1)
READY: dict[ReplicaId, AgentEvent] = {
    replica_id: ("vm-ready", replica_id, {}) for replica_id in REPLICAS
}
COMPLETED_0: AgentEvent = ("replica-exit", WORKER_0, {"cause": "process", "exit_status": 0})
FAILED_0: AgentEvent = ("replica-exit", WORKER_0, {"cause": "process", "exit_status": 1})
LOST: dict[ReplicaId, AgentEvent] = {
    replica_id: ("maintenance", replica_id, {"cause": "preemption"}) for replica_id in REPLICAS
}
ALL_READY, ALL_LOST = tuple(READY.values()), tuple(LOST.values())


def world_after(events: Sequence[AgentEvent], *, is_running: bool) -> World:
    """Handle the events in this order.

    All are about the incarnations that existed before the first event.
    """
    world = World()
    if is_running:
        world.start_running()
    else:
        world.submit()
        world.deliver()
    subjects = {replica_id: world.message_fields(replica_id) for replica_id in REPLICAS}
    for kind, replica_id, details in events:
        world.send(kind, replica_id, **{**subjects[replica_id], **details})
    world.check()
    return world


def without_moments(replica: Replica) -> Replica:
    moments = [field.name for field in fields(replica) if field.name.endswith("_at")]
    return replace(replica, version=0, **dict.fromkeys(moments))  # type: ignore[arg-type]


def outcome(world: World) -> tuple[JobState, object, list[Replica]]:
    return (
        world.job.state,
        world.job.budgets,
        [without_moments(replica) for replica in world.replicas],
    )


def charged(world: World) -> object:
    """Return what the round's end costs, and whom."""
    round_ = world.job.round
    assert round_ is not None
    counts = [
        (replica.restarts_used, replica.replaced, replica.vms_lost) for replica in world.replicas
    ]
    return (
        world.job.state,
        world.job.budgets,
        round_.number,
        round_.is_held,
        round_.stopped_by,
        counts,
    )


def worlds_after_every_order(events: Sequence[AgentEvent], *, is_running: bool) -> list[World]:
    return [world_after(order, is_running=is_running) for order in itertools.permutations(events)]


def are_equal(worlds: Sequence[World], by: Callable[[World], object]) -> bool:
    return all(by(world) == by(worlds[0]) for world in worlds)


def test_ready_events_in_any_order_start_the_job() -> None:
    worlds = worlds_after_every_order(ALL_READY, is_running=False)
    for world in worlds:
        world.deliver()
    assert are_equal(worlds, outcome)
    assert worlds[0].state == "RUNNING"


def test_vm_losses_in_any_order_give_the_same_state() -> None:
    worlds = worlds_after_every_order(ALL_LOST, is_running=True)
    assert are_equal(worlds, outcome)
    assert {replica.replaced for replica in worlds[0].replicas} == {1}


def test_loss_and_completion_of_two_replicas_in_any_order_charge_the_lost_one_only() -> None:
    worlds = worlds_after_every_order((LOST[WORKER_1], COMPLETED_0), is_running=True)
    assert are_equal(worlds, charged)
    assert [replica.replaced for replica in worlds[0].replicas] == [0, 0, 1]


def test_loss_before_or_after_peers_are_ready_charges_the_lost_one_only() -> None:
    worlds = worlds_after_every_order(
        (READY[WORKER_0], READY[WORKER_1], LOST[CHIEF]), is_running=False
    )
    assert are_equal(worlds, charged)
    assert [replica.replaced for replica in worlds[0].replicas] == [1, 0, 0]


@pytest.mark.parametrize(
    "events", [ALL_READY, ALL_LOST, (FAILED_0, LOST[WORKER_1]), (COMPLETED_0, LOST[CHIEF])], ids=len
)
def test_repeated_event_changes_nothing(events: tuple[AgentEvent, ...]) -> None:
    """Each event is repeated at every position after its first occurrence."""
    is_running = events is not ALL_READY
    once = world_after(events, is_running=is_running)
    for repeated, position in itertools.product(range(len(events)), range(len(events) + 1)):
        if position <= repeated:
            continue
        twice = world_after(
            (*events[:position], events[repeated], *events[position:]), is_running=is_running
        )
        assert outcome(twice) == outcome(once)
        assert [replica.version for replica in twice.replicas] == [
            replica.version for replica in once.replicas
        ]
        assert len(twice.ledger) == len(once.ledger)


def test_events_of_the_replaced_vm_change_nothing_in_any_order() -> None:
    loss_only = world_after((LOST[WORKER_0],), is_running=True)
    for order in itertools.permutations((READY[WORKER_0], COMPLETED_0, FAILED_0, LOST[WORKER_0])):
        assert outcome(world_after((LOST[WORKER_0], *order), is_running=True)) == outcome(loss_only)
