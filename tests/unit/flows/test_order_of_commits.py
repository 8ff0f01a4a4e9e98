"""Two events that are judged on the same state, and whose commits do not conflict, because one
writes only the job's document and the other only its replica's.

The ledger holds them in the order of the commits, not of the judgements, and gives the stored state
all the same.

A round is one common start of all members of a job. It is held until all have reported that they
are ready.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, WORKER_1
from tests.support.world import World, before_next_commit
from tests.unit.flows.test_elastic import lose, running, start
from trainmaster.core.actions import MarkReady, StopRound


def test_round_ends_before_the_report_of_a_new_member_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The elastic job runs without worker 1, whose next VM reports. The end of the round orders the
    next one, after the VM was ordered; the report was judged before.
    """
    world = start()
    lose(world, WORKER_1)
    assert running(world) == (2, ["worker-1"]), "round 2 goes on without worker 1"
    world.fleet.capacity.clear()
    world.wait(60)
    world.sweep()
    world.provision()

    def end_round() -> None:
        world.wait(1)
        world.exit_program(CHIEF, 1)

    before_next_commit(world, monkeypatch, end_round)
    world.send("vm-ready", WORKER_1)
    actions = [type(entry.decision.action) for entry in world.ledger[-2:]]
    assert actions == [StopRound, MarkReady]
    assert not world.replica(WORKER_1).round_reported
    world.check()
    world.deliver()
    assert running(world) == (3, []), "round 3 has all members"
    world.check()


def test_report_of_a_kept_vm_for_the_held_round_is_recorded_as_such() -> None:
    world = World()
    world.submit()
    world.start_running()
    world.exit_program(CHIEF, 1)
    world.deliver()
    assert world.job.round.number > 1
    assert world.replica(WORKER_1).round_reported
    world.check()
