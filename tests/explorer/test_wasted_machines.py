"""Machines of no use: what they cost, and whether the job outlasts what wastes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.explorer.cloud import FIRST_ID
from tests.explorer.scripted import Scripted
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.reconcile.steps import Create
from trainmaster.ports import CreateOutcome, NotCreated

MINUTE_S = 60.0
HOUR_S = 3600.0
SETUP_TRIES = 3


@contextmanager
def setups_fail(case: Scripted) -> Iterator[None]:
    """Let every set-up fail, as while a registry is down."""
    profile = case.world.profile
    case.world.profile = replace(profile, setup_fail=1.0)
    yield
    case.world.profile = profile


def running(case: Scripted) -> set[str]:
    """Return the replicas whose programs run."""
    programs = case.explored.programs.all
    return {str(program.replica_id) for program in programs if program.is_alive}


def vms_created(case: Scripted) -> int:
    return case.cloud.count - FIRST_ID


@pytest.mark.parametrize("kind", ["sync", "ps", "independent"])
@pytest.mark.parametrize("minutes", [2, 60])
def test_setup_outage_of_an_hour_is_outlasted_free_of_charge(kind: str, minutes: int) -> None:
    case = Scripted(size=3, kind=kind)
    with setups_fail(case):
        case.wait(minutes * MINUTE_S)
        assert not case.has_ended, case.story
    case.wait(HOUR_S + 10 * MINUTE_S)
    assert (case.job.state, case.job.attempt) == (JobState.RUNNING, 1), case.story
    assert case.charges == {}, case.story


def test_pause_of_a_replica_holds_no_other_that_is_judged_alone() -> None:
    case = Scripted(size=3, kind="independent", options={"independentReplicas": True})
    case.explored.is_coupled = False
    case.wait(HOUR_S)
    with setups_fail(case):
        case.lose("worker-0")
        case.wait(15 * MINUTE_S)
    case.lose("worker-1")
    case.wait(3 * MINUTE_S)
    assert "worker-1" in running(case), case.story
    assert "worker-0" not in running(case), "its own pause is an hour"
    case.wait(HOUR_S)
    assert "worker-0" in running(case), case.story
    assert case.charges == {}


@pytest.mark.parametrize("kind", ["sync", "ps"])
def test_setup_outage_beside_a_job_that_runs_is_outlasted_free_of_charge(kind: str) -> None:
    case = Scripted(size=3, kind=kind)
    case.wait(HOUR_S)
    with setups_fail(case):
        case.lose("worker-0")
        case.wait(HOUR_S)
    case.wait(HOUR_S + 10 * MINUTE_S)
    assert (case.job.state, case.job.attempt) == (JobState.RUNNING, 1), case.story
    assert case.charges == {}, case.story
    assert case.vm("worker-0").zone == case.job.zone


def test_setup_that_never_succeeds_ends_the_job_after_three_tries() -> None:
    replicas = 3
    case = Scripted(size=replicas)
    with setups_fail(case):
        case.wait(3 * HOUR_S)
    assert case.job.state is JobState.FAILED, case.story
    message = case.job.error_message or ""
    assert message.startswith("Internal error occurred for the current attempt: "), case.story
    assert vms_created(case) == SETUP_TRIES * replicas


def test_machine_that_is_unfit_after_its_reboot_is_replaced_free_of_charge() -> None:
    """Its GPU is gone, which is why the VM rebooted: nobody pays, and the machine is replaced."""
    case = Scripted(size=3)
    case.train(HOUR_S / 4)
    broken = case.vm("chief-0")
    for agent in broken.agents:
        agent.is_unfit = True
    case.reboot("chief-0")
    case.wait(10 * MINUTE_S)
    assert case.charges == {}, case.story
    assert case.vm("chief-0").instance_id != broken.instance_id
    assert case.explored.programs.are_training, case.story


@pytest.mark.parametrize(("kind", "roles"), [("sync", 1), ("ps", 2), ("independent", 1)])
def test_vms_beside_workers_without_capacity_are_limited(kind: str, roles: int) -> None:
    """Workers have no capacity in any zone: other VMs are created, but not without end."""
    case = Scripted(size=4, kind=kind)
    create = case.cloud.create

    def refuse_workers(job: Job, step: Create, metadata: dict[str, str]) -> CreateOutcome:
        if step.group.task_type is TaskType.WORKER:
            return NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", "none")
        return create(job, step, metadata)

    case.cloud.create = refuse_workers  # type: ignore[method-assign,assignment]
    case.wait(3 * HOUR_S)
    assert not case.has_ended, case.story
    assert vms_created(case) <= 60 * roles, case.story
