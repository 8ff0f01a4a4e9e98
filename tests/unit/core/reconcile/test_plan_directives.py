"""Directives that a reconciliation writes: which incarnation runs in a VM, waits in it or saves,
and until when the job can pay for it.

An incarnation is one start of a replica's program. The incarnations of all members are a round. A
held round waits until all members are ready.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support import alone
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at
from tests.unit.core.reconcile.planned_steps import (
    ALL,
    HOLD_2,
    NOW,
    RUN_1,
    RUN_2,
    a_vm,
    all_vms,
    creates,
    preparing,
    steps,
)
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.job import State
from trainmaster.core.model.money import read_money
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.round import Round, SaveCause, SaveRequest
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import DirectiveAction, Vm, VmStatus
from trainmaster.core.reconcile.plan import plan
from trainmaster.core.reconcile.steps import (
    Direct,
    Readiness,
    ReportMissingMember,
)
from trainmaster.core.timeouts import UNPAID_S


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
    save = (DirectiveAction.SAVE, ("10.0.0.1", address))
    assert [(written.action, written.slices) for written in directives] == (
        [save, save] if saves else []
    )
