"""Slices that have peers begin a incarnation when all of them are up, and are told where the others are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.model.job import Job, JobState, State
from shared.core.model.plan import TaskGroup, Tpu
from shared.core.model.replica import ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from shared.core.model.vm_names import vm_name
from shared.core.reconcile.desired import desired_vms
from shared.core.reconcile.plan import vm_steps
from shared.core.reconcile.slice_addresses import with_slice_addresses
from shared.core.reconcile.startup_timeout import find_startup_timeouts
from shared.core.reconcile.steps import Await, Create, Direct, Step
from shared.core.timeouts import STARTUP_TIMEOUT_S
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at

TWO = (TaskGroup(TaskType.WORKER, 2, "", tpu=Tpu("v5litepod-16", "r", hosts=4)),)
BESIDE_A_VM = (TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"), *TWO)
HOLD = Directive(1, 1, DirectiveAction.HOLD)
HERE, THERE, ELSEWHERE = "10.0.0.1", "10.0.1.1", "10.0.2.1"
RUN = Directive(1, 1, DirectiveAction.RUN, (HERE, THERE))


def of(groups: tuple[TaskGroup, ...], job_state: JobState = JobState.RUNNING) -> Job:
    return a_job(job_state, a_plan(groups=groups))


def a_slice(replica_id: ReplicaId, address: str, **changes: object) -> Vm:
    name = vm_name("digits_1", replica_id)
    vm = Vm(name, "us-central1-a", "1001", VmStatus.RUNNING, replica_id, 1, RUN, "1", is_tpu=True, address=address)
    return replace(vm, **changes)  # type: ignore[arg-type]


def steps(state: State, *vms: Vm) -> tuple[Step, ...]:
    wants = with_slice_addresses(state.job, desired_vms(state.job, state.replicas), vms)
    return vm_steps(state.job, wants, vms, state.replicas)


def waiting(groups: tuple[TaskGroup, ...] = TWO) -> State:
    job = of(groups, JobState.PREPARING)
    return a_state(*(a_replica(replica_id, ReplicaState.WAITING) for replica_id in job.plan.replica_ids), job=job)


def test_they_are_made_to_wait_for_each_other() -> None:
    (create,) = steps(waiting())
    assert isinstance(create, Create)
    assert create.directive == HOLD


def test_a_vm_beside_them_waits_as_well() -> None:
    found = steps(waiting(BESIDE_A_VM))
    assert [step.directive for step in found if isinstance(step, Create)] == [HOLD, HOLD]


def test_a_job_of_one_slice_or_without_any_is_not_held_up() -> None:
    alone = TaskGroup(TaskType.CHIEF, 1, "", tpu=TWO[0].tpu)
    beside = TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")
    for groups in ((alone,), (alone, beside), (TaskGroup(TaskType.WORKER, 2, "n1-standard-4"),)):
        for create in steps(waiting(groups)):
            assert isinstance(create, Create)
            assert create.directive == Directive(1, 1, DirectiveAction.RUN)


def test_an_evaluator_on_a_slice_is_not_waited_for() -> None:
    plan = of((TaskGroup(TaskType.EVALUATOR, 1, "", tpu=TWO[0].tpu), *TWO)).plan
    assert plan.slices == (WORKER_0, WORKER_1)


@pytest.mark.parametrize(
    "other",
    [
        a_slice(WORKER_1, "", status=VmStatus.CREATING, directive=HOLD),
        a_slice(WORKER_1, "", directive=HOLD),
        a_slice(WORKER_1, THERE, status=VmStatus.CREATING, directive=HOLD),
    ],
    ids=["being made", "without an address", "repaired"],
)
def test_none_begins_before_all_are_up(other: Vm) -> None:
    first = a_slice(WORKER_0, HERE, directive=HOLD)
    found = steps(waiting(), first, other)
    assert found, "never done: nobody would look again"
    assert all(isinstance(step, Await) for step in found)


def test_when_all_are_up_each_is_told_the_addresses_of_all_in_the_order_of_their_ranks() -> None:
    held = [a_slice(WORKER_1, THERE, directive=HOLD), a_slice(WORKER_0, HERE, directive=HOLD)]
    assert set(steps(waiting(), *held)) == {Direct(vm, RUN) for vm in held}
    chief = Vm(vm_name("digits_1", CHIEF), "us-central1-a", "7", VmStatus.RUNNING, CHIEF, 1, HOLD, "1")
    assert Direct(chief, RUN) in steps(waiting(BESIDE_A_VM), chief, *held)


def test_what_was_told_is_not_told_again() -> None:
    assert steps(waiting(), a_slice(WORKER_0, HERE), a_slice(WORKER_1, THERE)) == ()


def test_who_restarts_is_told_anew() -> None:
    state = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2), job=of(TWO))
    first = a_slice(WORKER_0, HERE)
    told = Directive(1, 2, DirectiveAction.RUN, (HERE, THERE))
    assert steps(state, first, a_slice(WORKER_1, THERE)) == (Direct(first, told),)


def test_one_that_is_replaced_waits_for_its_own_address_and_the_next_lives_learn_it() -> None:
    """The loss of one slice of two, from the order for another one to the incarnation after it."""
    lost = a_replica(WORKER_1, ReplicaState.REPLACING, incarnation=2, vm_generation=2)
    held = a_replica(WORKER_0, ReplicaState.HELD, incarnation=2)
    state = a_state(held, lost, job=of(TWO))
    first = a_slice(WORKER_0, HERE)
    hold = Directive(1, 2, DirectiveAction.HOLD)
    direct, create = steps(state, first)
    assert direct == Direct(first, hold)
    assert isinstance(create, Create)
    assert (create.names, create.vm_generation, create.directive) == ((vm_name("digits_1", WORKER_1),), 2, hold)
    first = replace(first, directive=hold)
    second = a_slice(WORKER_1, ELSEWHERE, vm_generation=2, directive=hold)
    told = Directive(1, 2, DirectiveAction.RUN, (HERE, ELSEWHERE))
    assert steps(state, first, second) == (Direct(second, told),), "the other is held until this one is back"
    second = replace(second, directive=told)
    back = a_state(held, a_replica(WORKER_1, incarnation=2, vm_generation=2), job=of(TWO))
    assert steps(back, first, second) == (Direct(first, told),)


def test_an_old_machine_that_is_still_there_is_no_address() -> None:
    lost = a_replica(WORKER_1, ReplicaState.REPLACING, incarnation=2, vm_generation=2)
    state = a_state(lost, a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2), job=of(TWO))
    first = a_slice(WORKER_0, HERE)
    found = steps(state, first, a_slice(WORKER_1, THERE))
    assert Direct(first, Directive(1, 2, DirectiveAction.HOLD)) in found


def test_a_slice_that_has_exited_0_is_nobodys_business() -> None:
    state = a_state(
        a_replica(WORKER_1, ReplicaState.COMPLETED),
        a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2),
        job=of(TWO),
    )
    first = a_slice(WORKER_0, HERE)
    assert steps(state, first) == (Direct(first, Directive(1, 2, DirectiveAction.RUN, (HERE, ""))),)


def test_waiting_for_the_others_is_no_silence() -> None:
    state = waiting()
    state = replace(state, replicas=tuple(replace(each, ordered_at=at(0)) for each in state.replicas))
    early, late = at(60), at(3000)
    vms = (a_slice(WORKER_0, HERE, started_at=early), a_slice(WORKER_1, THERE, started_at=late))
    assert find_startup_timeouts(state, tuple(replace(vm, directive=HOLD) for vm in vms), at(99_999)) == ()
    assert find_startup_timeouts(state, vms, at(3000 + STARTUP_TIMEOUT_S - 1)) == ()
    assert {lost.replica.replica_id for lost in find_startup_timeouts(state, vms, at(3000 + STARTUP_TIMEOUT_S))} == {
        WORKER_0,
        WORKER_1,
    }
