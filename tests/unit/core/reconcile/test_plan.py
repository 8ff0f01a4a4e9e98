"""The steps of a provisioning round: which VMs are created, deleted, directed, awaited or reported
lost.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.support import alone
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import Job, JobState, Placement, State
from trainmaster.core.model.money import read_money
from trainmaster.core.model.purchase import OnDemand, Purchase, Spot
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round, SaveCause, SaveRequest
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import Directive, DirectiveAction, LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.desired import price_of_vm
from trainmaster.core.reconcile.plan import CREATED_ANSWERS_MAX, delete_newer, plan
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Delete,
    Direct,
    Readiness,
    ReportLoss,
    ReportMissingMember,
    Step,
)
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S, UNPAID_S

NOW = at(100)
RUN_1 = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)
RUN_2 = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)
HOLD_2 = Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)
ALL = (CHIEF, WORKER_0, WORKER_1)


def a_vm(replica_id: ReplicaId = CHIEF, **changes: object) -> Vm:
    vm = Vm(
        vm_name("digits_1", replica_id),
        "us-central1-a",
        "1001",
        VmStatus.RUNNING,
        replica_id,
        1,
        RUN_1,
        "1",
    )
    return replace(vm, **changes)  # type: ignore[arg-type]


def steps(state: State, *vms: Vm) -> tuple[Step, ...]:
    return plan(state, vms, NOW).steps


def creates(state: State, *vms: Vm) -> list[Create]:
    return [step for step in steps(state, *vms) if isinstance(step, Create)]


def all_vms(*others: Vm) -> list[Vm]:
    """Return a running VM for each replica, with `others` in place of theirs."""
    given = {vm.replica_id: vm for vm in others}
    return [given.get(replica_id) or a_vm(replica_id) for replica_id in ALL]


def preparing(**changes: object) -> State:
    """Return a job none of whose VMs has been created."""
    waiting = [a_replica(replica_id, ReplicaState.WAITING) for replica_id in ALL]
    return a_state(*waiting, job=a_job(JobState.PREPARING, **changes))  # type: ignore[arg-type]


# Creating and deleting


def test_new_job_takes_one_insert_per_role() -> None:
    assert [(create.group.task_type, create.replica_ids) for create in creates(preparing())] == [
        (TaskType.CHIEF, (CHIEF,)),
        (TaskType.WORKER, (WORKER_0, WORKER_1)),
    ]


def test_vms_as_desired_need_no_step() -> None:
    assert plan(a_state(), tuple(all_vms()), NOW).is_done


def test_vm_that_is_being_created_is_awaited() -> None:
    creating = a_vm(WORKER_0, status=VmStatus.CREATING)
    round_ = plan(preparing(), tuple(all_vms(creating)), NOW)
    assert (round_.steps, round_.waits) == ((Await(creating),), True)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_ended_job_needs_no_vm(state: JobState) -> None:
    stopping = a_vm(WORKER_0, status=VmStatus.STOPPING)
    assert steps(a_state(job=a_job(state)), a_vm(CHIEF), stopping) == (
        Delete(a_vm(CHIEF)),
        Await(stopping),
    )


def test_vm_of_a_completed_replica_is_deleted() -> None:
    assert steps(a_state(a_replica(WORKER_0, ReplicaState.COMPLETED)), *all_vms()) == (
        Delete(a_vm(WORKER_0)),
    )


def test_replaced_vm_is_deleted_before_the_next_of_its_name_is_created() -> None:
    state = alone.a_state(
        a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2)
    )
    assert steps(state, *all_vms()) == (Delete(a_vm(WORKER_0)),)
    stopping = a_vm(WORKER_0, status=VmStatus.STOPPING)
    assert steps(state, *all_vms(stopping)) == (Await(stopping),)
    (create,) = creates(state, a_vm(CHIEF), a_vm(WORKER_1))
    assert (create.replica_ids, create.vm_generation, create.directive.incarnation) == (
        (WORKER_0,),
        2,
        2,
    )


def test_vms_in_the_zone_that_the_gang_left_are_deleted() -> None:
    state = preparing(placement=Placement(zone_index=1, round=1))
    assert Delete(a_vm(CHIEF)) in steps(state, a_vm(CHIEF))
    assert [create.zone for create in creates(state, a_vm(CHIEF))] == ["us-central1-b"]


@pytest.mark.parametrize(
    ("status", "starts"),
    [(VmStatus.RUNNING, False), (VmStatus.STOPPING, False), (VmStatus.STOPPED, True)],
)
def test_program_starts_when_no_other_vm_of_its_name_runs(
    status: VmStatus, *, starts: bool
) -> None:
    """A late insert may have created the other one in a zone that the job has left."""
    hold = replace(RUN_1, action=DirectiveAction.HOLD)
    own = a_vm(WORKER_0, directive=hold)
    other = replace(own, zone="us-central1-b", instance_id="9", status=status)
    ready = a_replica(WORKER_0, instance_id="1001")
    state = a_state(ready, job=a_job(plan=a_plan(independent=True)))
    found = steps(state, *all_vms(own), other)
    assert (Direct(own, RUN_1) in found) == starts


def test_vm_or_directive_of_a_newer_state_is_left_alone() -> None:
    newer_vm = a_vm(WORKER_0, vm_generation=2, status=VmStatus.CREATING)
    newer_directive = a_vm(
        WORKER_1, directive=Directive(attempt=2, incarnation=1, action=DirectiveAction.RUN)
    )
    assert steps(a_state(), *all_vms(newer_vm, newer_directive)) == ()


@pytest.mark.parametrize(
    ("round_", "found", "is_deleted"),
    [
        (Round(2), {"vm_generation": 2}, True),
        (
            Round(2),
            {"directive": Directive(attempt=2, incarnation=1, action=DirectiveAction.HOLD)},
            True,
        ),
        (
            Round(2),
            {"directive": Directive(attempt=1, incarnation=3, action=DirectiveAction.HOLD)},
            True,
        ),
        (
            Round(2, is_held=True),
            {"directive": Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)},
            True,
        ),
        (
            Round(2, is_held=True),
            {"directive": Directive(attempt=1, incarnation=2, action=DirectiveAction.HOLD)},
            False,
        ),
        (
            Round(2),
            {"directive": Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)},
            False,
        ),
        (
            Round(2),
            {"directive": Directive(attempt=1, incarnation=2, action=DirectiveAction.SAVE)},
            False,
        ),
        (
            Round(2),
            {"directive": Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)},
            False,
        ),
        (Round(2), {"directive": None}, False),
    ],
)
def test_vm_that_only_a_later_state_can_have_ordered_is_deleted(
    round_: Round, found: dict[str, Any], *, is_deleted: bool
) -> None:
    vm = a_vm(WORKER_0, **found)
    assert delete_newer(a_state(job=a_job(round=round_)), (vm,)) == (
        (Delete(vm),) if is_deleted else ()
    )


def test_deletion_of_a_newer_vm_is_awaited_and_vms_of_no_replica_are_not_judged() -> None:
    stopping, other = (
        a_vm(WORKER_0, vm_generation=2, status=VmStatus.STOPPING),
        a_vm(ReplicaId(TaskType.EVALUATOR, 0), vm_generation=9),
    )
    assert delete_newer(a_state(), (stopping, other)) == (Await(stopping),)


def test_request_key_is_the_same_for_a_repetition_and_differs_for_every_other_insert() -> None:
    first, again, elsewhere = (
        {create.request_key("digits_1") for create in creates(state)}
        for state in (
            preparing(),
            preparing(),
            preparing(placement=Placement(zone_index=0, round=1)),
        )
    )
    assert first == again
    assert not first & elsewhere
    assert len(first) == 2


def test_creates_wait_for_the_backoff_after_a_capacity_error() -> None:
    state = preparing(placement=Placement(zone_index=0, round=2, since=at(0), next_at=at(101)))
    waiting = plan(state, (), at(100))
    assert (waiting.steps, waiting.is_done) == ((), True)
    assert [type(step) for step in plan(state, (), at(101)).steps] == [Create, Create]


def test_other_steps_do_not_wait_for_the_backoff() -> None:
    state = preparing(placement=Placement(zone_index=1, round=2, since=at(0), next_at=at(101)))
    round_ = plan(state, (a_vm(CHIEF),), at(100))
    assert (round_.steps, round_.is_done) == ((Delete(a_vm(CHIEF)),), False)


# Directives


def test_restarting_replica_is_directed_to_its_next_incarnation() -> None:
    state = alone.a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
    assert steps(state, *all_vms()) == (Direct(a_vm(WORKER_0), RUN_2),)


def held(*replicas: Replica, is_held: bool = True) -> State:
    """Return a job whose second round is held; members that are not given are ready for it."""
    given = {replica.replica_id: replica for replica in replicas}
    members = [given.get(replica_id) or a_replica(replica_id, incarnation=2) for replica_id in ALL]
    return a_state(*members, job=a_job(round=Round(2, is_held=is_held, ordered_at=at(90))))


HELD_VMS = tuple(a_vm(replica_id, directive=HOLD_2) for replica_id in ALL)


def test_members_of_a_held_round_are_held_and_run_when_it_begins() -> None:
    assert steps(held(a_replica(CHIEF)), *all_vms(*HELD_VMS[1:])) == (Direct(a_vm(), HOLD_2),)
    running = steps(held(is_held=False), *HELD_VMS)
    assert running == tuple(Direct(vm, RUN_2) for vm in HELD_VMS)


@pytest.mark.parametrize(
    ("state", "vms", "expected"),
    [
        pytest.param(held(), HELD_VMS, Readiness.READY, id="ready"),
        pytest.param(held(a_replica(CHIEF)), HELD_VMS, Readiness.AWAITED, id="not reported"),
        pytest.param(
            held(),
            (*HELD_VMS, a_vm(CHIEF, zone="us-central1-b", vm_generation=0)),
            Readiness.AWAITED,
            id="VM that was given up",
        ),
        pytest.param(held(), HELD_VMS[1:], Readiness.AWAITED, id="lost VM"),
        pytest.param(
            held(a_replica(CHIEF, ReplicaState.WAITING)),
            HELD_VMS[1:],
            Readiness.REPORTED,
            id="no VM",
        ),
        pytest.param(held(is_held=False), HELD_VMS, Readiness.NOT_HELD, id="running"),
        pytest.param(a_state(), all_vms(), Readiness.NOT_HELD, id="first round"),
    ],
)
def test_round_may_begin_when_all_members_are_ready_and_no_other_vm_is_left(
    state: State, vms: tuple[Vm, ...], expected: Readiness
) -> None:
    assert plan(state, tuple(vms), NOW).readiness is expected


def test_running_round_without_the_vm_of_a_member_is_reported_before_anything_else() -> None:
    missing = a_replica(CHIEF, ReplicaState.REPLACING, vm_generation=2)
    assert steps(held(missing, is_held=False), *HELD_VMS[1:]) == (ReportMissingMember(missing),)
    first = a_state(a_replica(CHIEF, ReplicaState.WAITING))
    assert steps(first, *all_vms()[1:]) == (ReportMissingMember(first.replicas[0]),)


# Losses


def test_vm_that_vanished_under_a_running_replica_is_reported_lost() -> None:
    (step,) = steps(a_state(), a_vm(CHIEF), a_vm(WORKER_0))
    assert isinstance(step, ReportLoss)
    assert step.replica.replica_id == WORKER_1


def test_vm_that_stopped_before_its_agent_reported_is_reported_lost() -> None:
    stopped = a_vm(WORKER_1, status=VmStatus.STOPPED)
    (step,) = steps(preparing(), *all_vms(stopped))
    assert isinstance(step, ReportLoss)


def test_running_vm_in_another_zone_than_the_gang_is_deleted() -> None:
    elsewhere = a_vm(WORKER_1, zone="us-central1-b")
    assert steps(a_state(), *all_vms(elsewhere)) == (Delete(elsewhere),)


def test_vm_whose_agent_reports_nothing_is_reported_lost_after_the_startup_timeout() -> None:
    state = alone.a_state(
        a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, ordered_at=at(0))
    )
    vms = tuple(all_vms(a_vm(WORKER_0, directive=RUN_2, started_at=at(0))))
    assert plan(state, vms, at(STARTUP_TIMEOUT_S - 1)).is_done
    (step,) = plan(state, vms, at(STARTUP_TIMEOUT_S)).steps
    assert isinstance(step, ReportLoss)
    assert (step.replica.replica_id, step.cause) == (WORKER_0, LossCause.STARTUP_TIMEOUT)


def test_insert_that_created_vms_which_vanished_since_reports_them_lost() -> None:
    state = preparing()
    chief, workers = creates(state)
    answers = {
        chief.request_key("digits_1"): CREATED_ANSWERS_MAX,
        workers.request_key("digits_1"): 1,
    }
    worker_create, loss = sorted(
        plan(state, (), NOW, answers).steps, key=lambda step: isinstance(step, ReportLoss)
    )
    assert worker_create == workers
    assert isinstance(loss, ReportLoss)
    assert loss.replica.replica_id == CHIEF


# Cloud TPU's queue


def steps_for_request(status: VmStatus = VmStatus.QUEUED, **changes: Any) -> tuple[Step, ...]:
    """Return the steps for a job of one slice that exists only as a request."""
    group = TaskGroup(
        TaskType.CHIEF,
        1,
        machine_type="",
        tpu=Tpu("v5litepod-16", "r"),
        purchase=Purchase(is_queued=True),
    )
    job = a_job(JobState.PREPARING, a_plan(groups=(group,)))
    return steps(
        a_state(a_replica(CHIEF, ReplicaState.WAITING), job=job), a_vm(status=status, **changes)
    )


def test_queued_request_with_a_present_or_newer_directive_is_awaited() -> None:
    (present,) = steps_for_request()
    (newer,) = steps_for_request(
        directive=Directive(attempt=2, incarnation=1, action=DirectiveAction.RUN)
    )
    assert isinstance(present, Await)
    assert isinstance(newer, Await)


@pytest.mark.parametrize(
    "changes",
    [
        {"directive": Directive(attempt=1, incarnation=0, action=DirectiveAction.RUN)},
        {"zone": "us-central1-b"},
    ],
)
def test_queued_request_with_an_older_directive_or_in_another_zone_is_deleted(
    changes: dict[str, Any],
) -> None:
    assert [type(step) for step in steps_for_request(**changes)] == [Delete]


def test_refused_request_is_created_again_to_learn_the_reason() -> None:
    (create,) = steps_for_request(VmStatus.REFUSED)
    assert isinstance(create, Create)


@pytest.mark.parametrize("changes", [{"zone": "us-central1-b"}, {"vm_generation": 0}])
def test_refused_request_that_is_no_longer_desired_is_deleted(changes: dict[str, Any]) -> None:
    assert [type(step) for step in steps_for_request(VmStatus.REFUSED, **changes)] == [Delete]


def test_refused_request_of_an_ended_job_is_deleted() -> None:
    ended = a_state(job=a_job(JobState.CANCELLED))
    assert [type(step) for step in steps(ended, a_vm(status=VmStatus.REFUSED))] == [Delete]


# Spot VMs


def with_spot_workers(losses_max: int | None) -> Job:
    job_plan = a_plan()
    chief, workers = job_plan.groups
    workers = replace(workers, purchase=Purchase(Spot(losses_max)))
    return a_job(JobState.PREPARING, replace(job_plan, groups=(chief, workers)))


@pytest.mark.parametrize(
    ("losses_max", "vms_lost", "spot"),
    [(None, 0, True), (None, 98, True), (2, 1, True), (2, 2, False), (2, 8, False), (0, 0, False)],
)
def test_vm_is_on_demand_after_the_allowed_number_of_lost_spot_vms(
    losses_max: int | None, vms_lost: int, *, spot: bool
) -> None:
    job_plan = with_spot_workers(losses_max).plan
    worker = a_replica(WORKER_0, vms_lost=vms_lost, vm_generation=9)
    chief = a_replica(CHIEF, vms_lost=vms_lost)
    assert price_of_vm(job_plan, worker) == (Spot(losses_max) if spot else OnDemand())
    assert price_of_vm(job_plan, chief) == OnDemand(), "role without Spot VMs"


def test_spot_and_on_demand_vms_of_one_role_are_created_by_separate_inserts() -> None:
    waiting = [
        a_replica(CHIEF, ReplicaState.WAITING),
        a_replica(WORKER_0, ReplicaState.WAITING),
        a_replica(WORKER_1, ReplicaState.REPLACING, vms_lost=1),
    ]
    inserts = creates(a_state(*waiting, job=with_spot_workers(1)))
    assert [(create.replica_ids, create.price.is_preemptible) for create in inserts] == [
        ((CHIEF,), False),
        ((WORKER_0,), True),
        ((WORKER_1,), False),
    ]
    keys = {
        replace(create, price=price).request_key("digits_1")
        for create in inserts
        for price in (OnDemand(), Spot())
    }
    assert len(keys) == 6, "the pricing is part of the request key"


def capped(state: State, computed_s: float) -> State:
    """Return the state with a cap that pays for an hour since this time, less the reserve."""
    cap = Cap(read_money("1 USD"), per_hour=Decimal(1), computed_at=at(computed_s))
    plan_ = replace(state.job.plan, limits=replace(state.job.plan.limits, cap=cap))
    return replace(state, job=replace(state.job, plan=plan_))


def paid_until(computed_s: float) -> int:
    return int(at(computed_s + 3600 - UNPAID_S).timestamp())


def test_vms_learn_of_the_time_that_a_later_computation_has_added() -> None:
    known = replace(RUN_1, paid_until=paid_until(0))
    saving = replace(RUN_1, action=DirectiveAction.SAVE, save_number=2, paid_until=paid_until(0))
    newer = replace(RUN_2, paid_until=paid_until(0))
    vms = all_vms(
        a_vm(CHIEF, directive=known),
        a_vm(WORKER_0, directive=saving),
        a_vm(WORKER_1, directive=newer),
    )
    assert steps(capped(a_state(), 0), *vms) == ()
    written = [step for step in steps(capped(a_state(), 50), *vms) if isinstance(step, Direct)]
    extended = {step.vm.replica_id: step.directive for step in written}
    assert extended == {
        CHIEF: replace(known, paid_until=paid_until(50)),
        WORKER_0: replace(saving, paid_until=paid_until(50)),
    }, "a request to save stays, and a newer state is left alone"


@pytest.mark.parametrize(("computed_s", "is_requested"), [(0, True), (-3600, False)])
def test_no_vm_is_requested_when_its_time_is_over(computed_s: float, *, is_requested: bool) -> None:
    """The next sweep computes the cost, and cancels the job or extends the time."""
    assert bool(creates(capped(preparing(), computed_s))) == is_requested


@pytest.mark.parametrize(("address", "saves"), [("10.0.0.2", True), ("", False)])
def test_slices_that_save_have_the_addresses_of_all_slices(address: str, saves: bool) -> None:
    """A program that starts with this directive needs them as with any other one."""
    group = TaskGroup(TaskType.WORKER, 2, machine_type="", tpu=Tpu("v5litepod-16", "r", hosts=4))
    saving = SaveRequest(1, NOW, NOW, SaveCause.CAP, (WORKER_0, WORKER_1))
    job = a_job(plan=a_plan(groups=(group,)), round=Round(saving=saving))
    first = a_vm(WORKER_0, is_tpu=True, address="10.0.0.1")
    second = a_vm(WORKER_1, is_tpu=True, address=address, status=VmStatus.RUNNING)
    found = steps(a_state(a_replica(WORKER_0), a_replica(WORKER_1), job=job), first, second)
    directives = [step.directive for step in found if isinstance(step, Direct)]
    assert [(d.action, d.slices) for d in directives] == [
        (DirectiveAction.SAVE, ("10.0.0.1", address))
    ] * (2 * saves)
