"""Requests that wait in Cloud TPU's queue: the fleet lists them as VMs that are queued or
refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import CHIEF, a_job, a_plan, a_replica, a_state
from tests.unit.core.reconcile.planned_steps import a_vm, steps
from trainmaster.core.model.job import JobState
from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import Directive, DirectiveAction, VmStatus
from trainmaster.core.reconcile.steps import (
    Await,
    Create,
    Delete,
    Step,
)


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
