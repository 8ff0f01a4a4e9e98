from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from shared.core.model.job import Job, JobState, Placement, State
from shared.core.model.plan import TaskGroup, Tpu, TpuQueue
from shared.core.model.replica import ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from shared.core.model.vm_names import job_label, replica_id_from_vm_name, vm_name
from shared.core.reconcile.desired import desired_vms, is_spot
from shared.core.reconcile.plan import vm_steps
from shared.core.reconcile.steps import Await, Create, Delete, Direct, ReportLoss, Step
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at

RUN_1 = Directive(1, 1, DirectiveAction.RUN)


def a_vm(replica_id: ReplicaId = CHIEF, **changes: object) -> Vm:
    vm = Vm(vm_name("digits_1", replica_id), "us-central1-a", "1001", VmStatus.RUNNING, replica_id, 1, RUN_1, "1")
    return replace(vm, **changes)  # type: ignore[arg-type]


def steps(state: State, *vms: Vm) -> tuple[Step, ...]:
    return vm_steps(state.job, desired_vms(state.job, state.replicas), vms)


def everyone(*others: Vm) -> list[Vm]:
    """The VMs of all replicas, the given ones in the place of theirs."""
    given = {vm.replica_id: vm for vm in others}
    return [given.get(replica_id) or a_vm(replica_id) for replica_id in (CHIEF, WORKER_0, WORKER_1)]


def test_a_name_fits_compute_engine_whatever_the_job_id() -> None:
    for job_id in ("digits_1", "A" * 128, "Z_", "x__y"):
        for replica_id in (CHIEF, replace(WORKER_0, index=99_999)):
            name = vm_name(job_id, replica_id)
            assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name), name
            assert replica_id_from_vm_name(name) == replica_id


def test_two_jobs_never_share_a_name_or_a_label() -> None:
    ids = ["digits_1", "Digits_1", "digits__1", "DIGITS_1", "d" * 100, "d" * 101]
    assert len({vm_name(job_id, CHIEF) for job_id in ids}) == len(ids)
    assert len({job_label(job_id) for job_id in ids}) == len(ids)


def test_a_label_is_the_job_id_where_it_can_be() -> None:
    assert job_label("digits_1") == "digits_1"
    assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", job_label("Digits" * 20))


def test_a_new_job_takes_one_insert_per_role() -> None:
    waiting = [a_replica(replica_id, ReplicaState.WAITING) for replica_id in (CHIEF, WORKER_0, WORKER_1)]
    found = steps(a_state(*waiting, job=a_job(JobState.PREPARING)))
    assert [(type(step), step.group.task_type, step.replica_ids) for step in found if isinstance(step, Create)] == [
        (Create, TaskType.CHIEF, (CHIEF,)),
        (Create, TaskType.WORKER, (WORKER_0, WORKER_1)),
    ]


def test_a_fleet_as_wanted_needs_nothing() -> None:
    assert steps(a_state(), *everyone()) == ()


def in_queue(status: VmStatus = VmStatus.QUEUED, **changes: Any) -> tuple[Step, ...]:
    """The steps for a job of one slice, of which there is only the request."""
    group = TaskGroup(TaskType.CHIEF, 1, "", tpu=Tpu("v5litepod-16", "r", queue=TpuQueue.STANDARD))
    job = a_job(JobState.PREPARING, a_plan(groups=(group,)))
    return steps(a_state(a_replica(CHIEF, ReplicaState.WAITING), job=job), a_vm(status=status, **changes))


def test_what_is_in_the_queue_is_awaited_and_asked_for_anew_where_it_cannot_be_told_what_it_should_do() -> None:
    (await_,) = in_queue()
    assert isinstance(await_, Await)
    assert [type(step) for step in in_queue(directive=Directive(1, 0, DirectiveAction.RUN))] == [Delete]
    assert [type(step) for step in in_queue(zone="us-central1-b")] == [Delete]
    (newer,) = in_queue(directive=Directive(2, 1, DirectiveAction.RUN))
    assert isinstance(newer, Await)


def test_what_the_queue_refused_is_created_again_to_hear_why_and_deleted_where_it_is_no_longer_sought() -> None:
    (create,) = in_queue(VmStatus.REFUSED)
    assert isinstance(create, Create)
    assert [type(step) for step in in_queue(VmStatus.REFUSED, zone="us-central1-b")] == [Delete]
    assert [type(step) for step in in_queue(VmStatus.REFUSED, vm_generation=0)] == [Delete]
    ended = a_state(job=a_job(JobState.CANCELLED))
    assert [type(step) for step in steps(ended, a_vm(status=VmStatus.REFUSED))] == [Delete]


def test_a_vm_on_its_way_up_is_awaited() -> None:
    waiting = a_replica(WORKER_0, ReplicaState.WAITING)
    coming = a_vm(WORKER_0, status=VmStatus.CREATING)
    assert steps(a_state(waiting), *everyone(coming)) == (Await(coming),)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_ended_wants_no_vm(state: JobState) -> None:
    going = a_vm(WORKER_0, status=VmStatus.STOPPING)
    found = steps(a_state(job=a_job(state)), a_vm(CHIEF), going)
    assert found == (Delete(a_vm(CHIEF)), Await(going))


def test_a_restarted_replica_is_told_its_next_life() -> None:
    state = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50)))
    found = steps(state, *everyone())
    assert found == (Direct(a_vm(WORKER_0), Directive(1, 2, DirectiveAction.RUN)),)


def test_a_held_replica_waits_while_a_peer_is_down_and_runs_when_none_is() -> None:
    held = a_replica(CHIEF, ReplicaState.HELD, incarnation=2)
    down = a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(50))
    new = a_vm(WORKER_0, vm_generation=2, directive=Directive(1, 2, DirectiveAction.RUN))
    assert steps(a_state(held, down), *everyone(new)) == (Direct(a_vm(), Directive(1, 2, DirectiveAction.HOLD)),)
    back = a_replica(WORKER_0, incarnation=2, vm_generation=2, lost_at=at(50))
    told = a_vm(CHIEF, directive=Directive(1, 2, DirectiveAction.HOLD))
    found = steps(a_state(held, back), *everyone(told, new))
    assert found == (Direct(told, Directive(1, 2, DirectiveAction.RUN)),)


def test_a_replaced_vm_is_deleted_before_the_next_of_its_name_is_made() -> None:
    state = a_state(a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(50)))
    assert steps(state, *everyone()) == (Delete(a_vm(WORKER_0)),)
    going = a_vm(WORKER_0, status=VmStatus.STOPPING)
    assert steps(state, *everyone(going)) == (Await(going),)
    (create,) = steps(state, a_vm(CHIEF), a_vm(WORKER_1))
    assert isinstance(create, Create)
    assert (create.replica_ids, create.vm_generation, create.directive.incarnation) == ((WORKER_0,), 2, 2)


def test_a_vm_or_a_directive_newer_than_what_was_read_is_left_alone() -> None:
    ahead = a_vm(WORKER_0, vm_generation=2, status=VmStatus.CREATING)
    told = a_vm(WORKER_1, directive=Directive(2, 1, DirectiveAction.RUN))
    assert steps(a_state(), *everyone(ahead, told)) == ()


def test_a_vm_that_vanished_under_a_running_replica_is_lost_not_made_again() -> None:
    (step,) = steps(a_state(), a_vm(CHIEF), a_vm(WORKER_0))
    assert isinstance(step, ReportLoss)
    assert step.replica.replica_id == WORKER_1


def test_a_vm_that_stopped_is_lost_even_before_its_agent_spoke() -> None:
    stopped = a_vm(WORKER_1, status=VmStatus.STOPPED)
    waiting = a_replica(WORKER_1, ReplicaState.WAITING)
    (step,) = steps(a_state(waiting), *everyone(stopped))
    assert isinstance(step, ReportLoss)


def test_a_done_replicas_vm_is_given_back() -> None:
    assert steps(a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), *everyone()) == (Delete(a_vm(WORKER_0)),)


def test_a_gang_that_moves_leaves_no_vm_in_the_old_zone() -> None:
    job = a_job(JobState.PREPARING, placement=Placement(1, 1))
    waiting = [a_replica(replica_id, ReplicaState.WAITING) for replica_id in (CHIEF, WORKER_0, WORKER_1)]
    found = steps(a_state(*waiting, job=job), a_vm(CHIEF))
    assert Delete(a_vm(CHIEF)) in found
    assert [step.zone for step in found if isinstance(step, Create)] == ["us-central1-b"]


def test_repeating_an_insert_keeps_its_request_and_any_other_insert_has_its_own() -> None:
    waiting = [a_replica(replica_id, ReplicaState.WAITING) for replica_id in (CHIEF, WORKER_0, WORKER_1)]
    first = steps(a_state(*waiting, job=a_job(JobState.PREPARING)))
    again = steps(a_state(*waiting, job=a_job(JobState.PREPARING)))
    elsewhere = steps(a_state(*waiting, job=a_job(JobState.PREPARING, placement=Placement(0, 1))))
    keys = [
        [step.request_key("digits_1") for step in each if isinstance(step, Create)]
        for each in (first, again, elsewhere)
    ]
    assert keys[0] == keys[1]
    assert not set(keys[0]) & set(keys[2])
    assert len(set(keys[0])) == 2


def on_spot(on_demand_after: int | None) -> Job:
    plan = a_plan(on_demand_after=on_demand_after)
    groups = tuple(replace(group, spot=group.task_type is TaskType.WORKER) for group in plan.groups)
    return a_job(JobState.PREPARING, replace(plan, groups=groups))


@pytest.mark.parametrize(
    ("on_demand_after", "vm_generation", "spot"),
    [(None, 1, True), (None, 99, True), (2, 2, True), (2, 3, False), (2, 9, False), (0, 1, False)],
)
def test_a_seat_that_lost_its_spot_vms_gets_the_next_on_demand(
    on_demand_after: int | None, vm_generation: int, *, spot: bool
) -> None:
    plan = on_spot(on_demand_after).plan
    assert is_spot(plan, a_replica(WORKER_0, vm_generation=vm_generation)) is spot
    assert is_spot(plan, a_replica(WORKER_0, vm_generation=vm_generation, attempt=2)) is spot, "a rerun changes no VM"
    assert not is_spot(plan, a_replica(CHIEF, vm_generation=vm_generation)), "only what the role asks for"


def test_seats_on_spot_and_on_demand_are_made_by_inserts_of_their_own() -> None:
    waiting = [
        a_replica(CHIEF, ReplicaState.WAITING),
        a_replica(WORKER_0, ReplicaState.WAITING),
        a_replica(WORKER_1, ReplicaState.REPLACING, vm_generation=2),
    ]
    found = [step for step in steps(a_state(*waiting, job=on_spot(1))) if isinstance(step, Create)]
    assert [(step.replica_ids, step.spot) for step in found] == [
        ((CHIEF,), False),
        ((WORKER_0,), True),
        ((WORKER_1,), False),
    ]
    keys = {replace(step, spot=spot).request_key("digits_1") for step in found for spot in (False, True)}
    assert len(keys) == 6, "how a VM is bought is part of the request"
