"""Slices with peers start an incarnation when all of them run, and get the addresses of all.

A slice is a TPU machine of several hosts, here a replica. Its address is known only when it runs,
and changes when it is replaced. So a slice is created *held*: its agents start no program before a
directive with the addresses of all slices. An incarnation is one execution of a program; a *round*
is a common start of all members. Rounds, incarnations and VM generations count from 1.

An attempt is one execution of the whole job.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.plan import plan
from trainmaster.core.reconcile.startup_timeout import find_startup_timeouts
from trainmaster.core.reconcile.steps import Await, Create, Direct, Step
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S

TPU = Tpu("v5litepod-16", "r", hosts=4)
TWO_SLICES = (TaskGroup(TaskType.WORKER, 2, machine_type="", tpu=TPU),)
WITH_CHIEF_VM = (TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"), *TWO_SLICES)
HOLD = Directive(attempt=1, incarnation=1, action=DirectiveAction.HOLD)
HOLD_2 = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
ADDRESS_0 = "10.0.0.1"
ADDRESS_1 = "10.0.1.1"
NEW_ADDRESS_1 = "10.0.2.1"
"""That of the slice which replaces worker 1."""
RUN = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN, slices=(ADDRESS_0, ADDRESS_1))


def job_of(groups: tuple[TaskGroup, ...], job_state: JobState = JobState.RUNNING) -> Job:
    return a_job(job_state, a_plan(groups=groups))


def a_slice(replica_id: ReplicaId, address: str, **changes: object) -> Vm:
    """Return a slice that runs its first incarnation, with these changes."""
    name = vm_name("digits_1", replica_id)
    vm = Vm(
        name,
        zone="us-central1-a",
        instance_id="1001",
        status=VmStatus.RUNNING,
        replica_id=replica_id,
        vm_generation=1,
        directive=RUN,
        fingerprint="1",
        is_tpu=True,
        address=address,
    )
    return replace(vm, **changes)  # type: ignore[arg-type]


FIRST = a_slice(WORKER_0, ADDRESS_0)
SECOND = a_slice(WORKER_1, ADDRESS_1)


def steps(state: State, *vms: Vm) -> tuple[Step, ...]:
    """Return what is to be done so that these VMs become those that the state desires."""
    return plan(state, vms, at(100)).steps


def directives(state: State) -> list[Directive]:
    """Return the directives that the VMs are created with."""
    return [step.directive for step in steps(state) if isinstance(step, Create)]


def preparing(groups: tuple[TaskGroup, ...] = TWO_SLICES) -> State:
    job = job_of(groups, JobState.PREPARING)
    return a_state(
        *(a_replica(replica_id, ReplicaState.WAITING) for replica_id in job.plan.replica_ids),
        job=job,
    )


def begun(groups: tuple[TaskGroup, ...] = TWO_SLICES) -> State:
    """Return a job whose first round has just begun."""
    return a_state(job=job_of(groups))


def test_slices_are_created_held() -> None:
    assert directives(preparing()) == [HOLD]


def test_vm_in_a_cluster_with_slices_is_created_held() -> None:
    assert directives(preparing(WITH_CHIEF_VM)) == [HOLD, HOLD]


def test_slice_of_an_evaluator_is_not_one_of_the_slices_with_addresses() -> None:
    groups = (TaskGroup(TaskType.EVALUATOR, 1, machine_type="", tpu=TPU), *TWO_SLICES)
    assert job_of(groups).plan.slices == (WORKER_0, WORKER_1)


@pytest.mark.parametrize(
    "second",
    [
        a_slice(WORKER_1, address="", status=VmStatus.CREATING, directive=HOLD),
        a_slice(WORKER_1, address="", directive=HOLD),
        a_slice(WORKER_1, ADDRESS_1, status=VmStatus.CREATING, directive=HOLD),
    ],
    ids=["being created", "without an address", "being repaired"],
)
def test_held_slices_are_awaited_until_all_run(second: Vm) -> None:
    awaited = steps(begun(), replace(FIRST, directive=HOLD), second)
    assert awaited, "without a step the round would be done, and no later round would follow"
    assert all(isinstance(step, Await) for step in awaited)


def test_members_get_all_addresses_in_rank_order_when_all_slices_run() -> None:
    held = [replace(SECOND, directive=HOLD), replace(FIRST, directive=HOLD)]
    assert set(steps(begun(), *held)) == {Direct(vm, RUN) for vm in held}
    chief = a_slice(CHIEF, address="", directive=HOLD, is_tpu=False)
    assert Direct(chief, RUN) in steps(begun(WITH_CHIEF_VM), chief, *held)


def test_directive_with_addresses_is_written_once() -> None:
    assert steps(begun(), FIRST, SECOND) == ()


def in_round_2(*members: Replica, is_held: bool) -> State:
    job = replace(job_of(TWO_SLICES), round=Round(2, is_held=is_held))
    return a_state(*members, job=job)


READY_2 = [a_replica(replica_id, incarnation=2) for replica_id in (WORKER_0, WORKER_1)]


def test_slices_get_the_addresses_again_when_the_next_round_begins() -> None:
    run = Directive(
        attempt=1, incarnation=2, action=DirectiveAction.RUN, slices=(ADDRESS_0, ADDRESS_1)
    )
    assert steps(in_round_2(*READY_2, is_held=False), FIRST, SECOND) == (
        Direct(FIRST, run),
        Direct(SECOND, run),
    )


def test_round_begins_with_the_address_of_a_replaced_slice() -> None:
    """The loss of one of two slices, from the order of another one to the next round of both."""
    lost = a_replica(WORKER_1, ReplicaState.REPLACING, vm_generation=2)
    direct, create = steps(in_round_2(a_replica(WORKER_0), lost, is_held=True), FIRST)
    assert direct == Direct(FIRST, HOLD_2)
    assert isinstance(create, Create)
    assert (create.names, create.vm_generation, create.directive) == (
        (vm_name("digits_1", WORKER_1),),
        2,
        HOLD_2,
    )
    first = replace(FIRST, directive=HOLD_2)
    second = a_slice(WORKER_1, NEW_ADDRESS_1, vm_generation=2, directive=HOLD_2)
    run = Directive(
        attempt=1, incarnation=2, action=DirectiveAction.RUN, slices=(ADDRESS_0, NEW_ADDRESS_1)
    )
    begun = in_round_2(READY_2[0], replace(READY_2[1], vm_generation=2), is_held=False)
    assert steps(begun, first, second) == (Direct(first, run), Direct(second, run))


def test_completed_slice_has_an_empty_address_and_is_not_awaited() -> None:
    completed = a_replica(WORKER_1, ReplicaState.COMPLETED, incarnation=2)
    run = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN, slices=(ADDRESS_0, ""))
    assert steps(in_round_2(READY_2[0], completed, is_held=False), FIRST) == (Direct(FIRST, run),)


def test_startup_timeout_counts_from_the_start_of_the_last_slice() -> None:
    state = preparing()
    state = replace(
        state, replicas=tuple(replace(replica, ordered_at=at(0)) for replica in state.replicas)
    )
    vms = (replace(FIRST, started_at=at(60)), replace(SECOND, started_at=at(3000)))
    held = tuple(replace(vm, directive=HOLD) for vm in vms)
    assert find_startup_timeouts(state, held, at(3000 + STARTUP_TIMEOUT_S - 1)) == ()
    timeouts = find_startup_timeouts(state, held, at(3000 + STARTUP_TIMEOUT_S))
    assert {loss.replica.replica_id for loss in timeouts} == {WORKER_0, WORKER_1}
