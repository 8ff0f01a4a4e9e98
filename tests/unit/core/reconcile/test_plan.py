"""The steps of a reconciliation: which VMs are created, deleted, awaited or reported lost, so that
those of a job become those that its state desires.

A VM has a generation, which grows with each VM of its replica, and a directive, which says what its
agent does. Both show whether another delivery has a newer state of the job. A placement round is
one request for VMs in one zone; the next one begins after a capacity error.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support import alone
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at
from tests.unit.core.reconcile.planned_steps import (
    NOW,
    RUN_1,
    RUN_2,
    a_vm,
    all_vms,
    creates,
    preparing,
    steps,
)
from trainmaster.core.model.job import JobState, Placement
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.vm import Directive, DirectiveAction, LossCause, VmStatus
from trainmaster.core.reconcile.plan import CREATED_ANSWERS_MAX, delete_newer, plan
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Delete,
    Direct,
    ReportLoss,
)
from trainmaster.core.timeouts import STARTUP_TIMEOUT_S


def test_new_job_takes_one_insert_per_role() -> None:
    assert [(create.group.task_type, create.replica_ids) for create in creates(preparing())] == [
        (TaskType.CHIEF, (CHIEF,)),
        (TaskType.WORKER, (WORKER_0, WORKER_1)),
    ]


def test_vms_as_desired_need_no_step() -> None:
    assert plan(a_state(), tuple(all_vms()), NOW).is_done


def test_vm_that_is_being_created_is_awaited() -> None:
    creating = a_vm(WORKER_0, status=VmStatus.CREATING)
    planned = plan(preparing(), tuple(all_vms(creating)), NOW)
    assert (planned.steps, planned.waits) == ((Await(creating),), True)


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


def directed(action: DirectiveAction, *, attempt: int = 1, incarnation: int = 2) -> dict[str, Any]:
    return {"directive": Directive(attempt=attempt, incarnation=incarnation, action=action)}


ROUND_2 = Round(2)
HELD_ROUND_2 = Round(2, is_held=True)


@pytest.mark.parametrize(
    ("stored", "found", "is_deleted"),
    [
        pytest.param(ROUND_2, {"vm_generation": 2}, True, id="next VM"),
        pytest.param(ROUND_2, directed(DirectiveAction.HOLD, attempt=2), True, id="next attempt"),
        pytest.param(ROUND_2, directed(DirectiveAction.HOLD, incarnation=3), True, id="next round"),
        pytest.param(HELD_ROUND_2, directed(DirectiveAction.RUN), True, id="begun round"),
        pytest.param(HELD_ROUND_2, directed(DirectiveAction.HOLD), False, id="the held round"),
        pytest.param(ROUND_2, directed(DirectiveAction.RUN), False, id="the round"),
        pytest.param(ROUND_2, directed(DirectiveAction.SAVE), False, id="request to save"),
        pytest.param(ROUND_2, directed(DirectiveAction.RUN, incarnation=1), False, id="last round"),
        pytest.param(ROUND_2, {"directive": None}, False, id="no directive"),
    ],
)
def test_vm_that_only_a_later_state_can_have_ordered_is_deleted(
    stored: Round, found: dict[str, Any], *, is_deleted: bool
) -> None:
    vm = a_vm(WORKER_0, **found)
    assert delete_newer(a_state(job=a_job(round=stored)), (vm,)) == (
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
    planned = plan(state, (a_vm(CHIEF),), at(100))
    assert (planned.steps, planned.is_done) == ((Delete(a_vm(CHIEF)),), False)


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
    answers = {  # how often Compute Engine answered the insert as done, for each request
        chief.request_key("digits_1"): CREATED_ANSWERS_MAX,
        workers.request_key("digits_1"): 1,
    }
    worker_create, loss = sorted(
        plan(state, (), NOW, answers).steps, key=lambda step: isinstance(step, ReportLoss)
    )
    assert worker_create == workers
    assert isinstance(loss, ReportLoss)
    assert loss.replica.replica_id == CHIEF
