"""Which VMs of a role with Spot VMs are bought on demand, after how many losses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state
from tests.unit.core.reconcile.planned_steps import creates
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.purchase import OnDemand, Purchase, Spot
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.reconcile.desired import price_of_vm


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
