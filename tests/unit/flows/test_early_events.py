"""An event that is early does not use up its key: the same event is judged again later.

The ledger of a job has one entry per key. That of a replica's event names attempt, replica,
incarnation (start of the program) and VM: `1-worker-0-2-vm-1-exit`.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.jobs import WORKER_0
from tests.support.world import World
from trainmaster.core.events import Deadline, DeadlinePassed
from trainmaster.flows.commit.record import record


@pytest.fixture
def world() -> World:
    return World(is_independent=True)


def test_early_deadline_does_not_keep_the_job_from_being_cancelled_later(world: World) -> None:
    world.start_running()
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == "RUNNING"
    assert "deadline-running" not in {entry.key for entry in world.ledger}
    world.wait(timedelta(seconds=world.job.plan.limits.max_running_s).total_seconds())
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == "CANCELLED"


@pytest.mark.parametrize(("before_s", "state"), [(1, "RUNNING"), (0, "CANCELLED")])
def test_deadline_passes_at_the_second_of_max_running_time(
    world: World, before_s: int, state: str
) -> None:
    world.start_running()
    assert world.job.started_at is not None
    end = world.job.started_at + timedelta(seconds=world.job.plan.limits.max_running_s)
    world.wait((end - world.now).total_seconds() - before_s)
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == state


def test_event_of_an_incarnation_that_was_never_ordered_does_not_use_up_its_key(
    world: World,
) -> None:
    world.start_running()
    world.exit_program(WORKER_0, 1, incarnation=2)
    assert "1-worker-0-2-vm-1-exit" not in {entry.key for entry in world.ledger}
    world.exit_program(WORKER_0, 1)
    world.exit_program(WORKER_0, 1, incarnation=2)
    assert world.replica(WORKER_0).restarts_used == 2
