"""An event that is early does not use up its key: the same event is judged again later."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.jobs import WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.events import CompletionOutdated, Deadline, DeadlinePassed, IncarnationRef, VmRef
from trainmaster.core.model.job import RERUNS_MAX, Budgets
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.timeouts import LOSS_REPORT_DELAY_MAX
from trainmaster.errors import TemporaryError
from trainmaster.flows import replica_exit
from trainmaster.flows.commit.record import record
from trainmaster.messaging import agent_messages
from trainmaster_emulators.services.pubsub import DELIVERY


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


@pytest.fixture
def last_abort(world: World) -> Callable[[], None]:
    """Deliver the abort of worker 0 in a job that has used up its reruns. The VM of worker 1 was lost just before."""
    world.start_running()
    for _ in range(RERUNS_MAX):
        world.kill(WORKER_0, signal=11)
        world.deliver()
        world.report_all_ready()
    assert world.job.budgets == Budgets(reruns_used=RERUNS_MAX)
    world.wait(600)
    exit_ = {"at": world.now.isoformat(), "cause": "process", "signal": 6}
    data = json.dumps({**world.message_fields(WORKER_0), **exit_}).encode()
    return lambda: replica_exit.handle(agent_messages.decode_replica_exit(data), world.deps)


def test_exit_that_would_end_the_job_is_redelivered_until_the_loss_that_explains_it_is_found(
    world: World, last_abort: Callable[[], None]
) -> None:
    world.fleet.stop(vm_name(world.job_id, WORKER_1))
    with pytest.raises(TemporaryError, match="may still explain this exit"):
        last_abort()
    world.wait(30)
    world.provision()
    last_abort()
    assert world.state == "RUNNING"
    assert world.replica(WORKER_0).state is ReplicaState.HELD
    assert world.job.budgets == Budgets(reruns_used=RERUNS_MAX)
    world.check()


def test_exit_that_no_loss_explains_within_three_minutes_ends_the_job(
    world: World, last_abort: Callable[[], None]
) -> None:
    with pytest.raises(TemporaryError):
        last_abort()
    world.wait(LOSS_REPORT_DELAY_MAX.total_seconds())
    last_abort()
    assert world.state == "FAILED"
    assert "rerun 3 times" in world.ledger[-1].decision.text
    world.check()


def test_postponed_exit_is_judged_before_its_deliveries_are_used_up_without_backoff(
    world: World, last_abort: Callable[[], None]
) -> None:
    """The local stack redelivers at once, and forwards a message to the dead-letter topic after 100 deliveries."""
    for _ in range(DELIVERY.attempts_max):
        try:
            last_abort()
        except TemporaryError:
            continue
        break
    assert world.state == "FAILED"
