"""I7, precisely. What agents say arrives in any order and any number of times; this is what is promised of the result.

1. Repeating events changes nothing: the state is equal, to the last counter and version.
2. Words of different replicas that do not judge each other (ready, done, lost) may come in any order: the same state, but
   for the moments at which things were stored.
3. Words of one replica's earlier incarnation change nothing once a later one has been ordered, wherever they come.

Not promised: the order of failures. Who of two replicas failed first decides who is charged, and a job may end before
a later event can say anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from shared.core.model.job import JobState, Replica
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World

Told = tuple[str, Any, dict[str, object]]

READY: tuple[Told, ...] = tuple(("vm-ready", replica_id, {}) for replica_id in (CHIEF, WORKER_0, WORKER_1))
DONE_0: Told = ("replica-exit", WORKER_0, {"cause": "process", "exit_status": 0})
FAILED_0: Told = ("replica-exit", WORKER_0, {"cause": "process", "exit_status": 1})
LOST: tuple[Told, ...] = tuple(
    ("maintenance", replica_id, {"cause": "preemption"}) for replica_id in (CHIEF, WORKER_0, WORKER_1)
)


def told(events: Sequence[Told], *, is_running: bool) -> World:
    """Every event speaks of the incarnation that its VM was told before any of them was heard."""
    world = World()
    if is_running:
        world.running()
    else:
        world.submit()
        world.deliver()
    incarnations = {replica_id: world.subject(replica_id) for replica_id in (CHIEF, WORKER_0, WORKER_1)}
    for kind, replica_id, fact in events:
        world.tell(kind, replica_id, **{**incarnations[replica_id], **fact})
    world.check()
    return world


def timeless(replica: Replica) -> Replica:
    moments = [each.name for each in fields(replica) if each.name.endswith("_at")]
    return replace(replica, version=0, **dict.fromkeys(moments))  # type: ignore[arg-type]


def outcome(world: World) -> tuple[JobState, object, list[Replica]]:
    return world.job.state, world.job.budgets, [timeless(replica) for replica in world.replicas]


def every_order(events: Sequence[Told], *, is_running: bool) -> list[World]:
    return [told(order, is_running=is_running) for order in itertools.permutations(events)]


def the_same(worlds: Sequence[World], of: Callable[[World], object]) -> bool:
    return all(of(world) == of(worlds[0]) for world in worlds)


def test_replicas_become_ready_in_any_order() -> None:
    worlds = every_order(READY, is_running=False)
    assert the_same(worlds, outcome)
    assert worlds[0].state == "RUNNING"


def test_vms_are_lost_in_any_order() -> None:
    worlds = every_order(LOST, is_running=True)
    assert the_same(worlds, outcome)
    assert {replica.replaced for replica in worlds[0].replicas} == {1}


def test_one_is_lost_and_another_is_done_in_any_order() -> None:
    assert the_same(every_order((LOST[2], DONE_0), is_running=True), outcome)


def test_one_is_lost_before_its_peers_are_ready_or_after() -> None:
    worlds = every_order((READY[1], READY[2], LOST[0]), is_running=False)
    assert the_same(worlds, outcome)


def test_a_replica_is_done_before_or_after_it_was_heard_to_be_ready() -> None:
    worlds = every_order((*READY, DONE_0), is_running=False)
    assert the_same(worlds, lambda world: world.state)


@pytest.mark.parametrize("events", [READY, LOST, (FAILED_0, LOST[2]), (DONE_0, LOST[0])], ids=len)
def test_what_is_said_again_changes_nothing(events: tuple[Told, ...]) -> None:
    """Any event once more, anywhere after its first time."""
    is_running = events is not READY
    once = told(events, is_running=is_running)
    for again, at in itertools.product(range(len(events)), range(len(events) + 1)):
        if at <= again:
            continue
        twice = told((*events[:at], events[again], *events[at:]), is_running=is_running)
        assert outcome(twice) == outcome(once)
        assert [each.version for each in twice.replicas] == [each.version for each in once.replicas]
        assert len(twice.ledger) == len(once.ledger)


def test_words_of_an_earlier_life_change_nothing_wherever_they_come() -> None:
    """The old machine speaks after its replacement was ordered: in any order, it is not heard."""
    alone = told((LOST[1],), is_running=True)
    for order in itertools.permutations((READY[1], DONE_0, FAILED_0, LOST[1])):
        assert outcome(told((LOST[1], *order), is_running=True)) == outcome(alone)
