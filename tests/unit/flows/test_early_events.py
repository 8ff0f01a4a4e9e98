"""An event that is early does not use up its key: the same event is judged again later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.core.events import CompletionOutdated, Deadline, DeadlinePassed, IncarnationRef, VmRef
from shared.flows.record import record
from tests.support.jobs import WORKER_0
from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World()


def test_early_deadline_does_not_keep_the_job_from_being_cancelled_later(world: World) -> None:
    world.start_running()
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == "RUNNING"
    assert "deadline-running" not in {entry.key for entry in world.ledger}
    world.wait(timedelta(seconds=world.job.plan.max_running_s).total_seconds())
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == "CANCELLED"


@pytest.mark.parametrize(("before_s", "state"), [(1, "RUNNING"), (0, "CANCELLED")])
def test_deadline_passes_at_the_second_of_max_running_time(world: World, before_s: int, state: str) -> None:
    world.start_running()
    assert world.job.started_at is not None
    end = world.job.started_at + timedelta(seconds=world.job.plan.max_running_s)
    world.wait((end - world.now).total_seconds() - before_s)
    record(DeadlinePassed(world.job_id, Deadline.RUNNING, world.now), world.deps)
    assert world.state == state


def test_completion_that_is_not_outdated_yet_is_judged_again_when_the_primary_has_restarted(world: World) -> None:
    world.start_running()
    world.exit_program(WORKER_0, 0)
    vm = VmRef("vm", "us-central1-a", world.replica(WORKER_0).instance_id or "")
    subject = IncarnationRef(world.job_id, 1, WORKER_0, 1, 1, vm)
    record(CompletionOutdated(subject, world.now), world.deps)
    assert world.replica(WORKER_0).state.value == "COMPLETED"
    world.exit_program(world.job.plan.primary, 1)
    record(CompletionOutdated(subject, world.now), world.deps)
    assert world.replica(WORKER_0).incarnation == 2


def test_event_of_an_incarnation_that_was_never_ordered_does_not_use_up_its_key(world: World) -> None:
    world.start_running()
    world.exit_program(WORKER_0, 1, incarnation=2)
    assert "1-worker-0-2-vm-1-exit" not in {entry.key for entry in world.ledger}
    world.exit_program(WORKER_0, 1)
    world.exit_program(WORKER_0, 1, incarnation=2)
    assert world.replica(WORKER_0).restarts_used == 2
