"""Placement policies: they put the VMs of a gang, which trains together, close to each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import requests

from tests.contract.compute_fleet.answers import a_response
from tests.contract.fleets import (
    NOWHERE,
    OTHER_ZONE,
    EmulatorWorld,
    a_create,
    delete_and_wait,
    metadata,
)
from tests.integration.compute.emulator import PROJECT, ZONE
from tests.support.jobs import START, WORKER_0, a_replica, a_state, change_plan
from tests.support.stack import eventually
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job, JobState, LeftZone, Placement
from trainmaster.core.model.purchase import Purchase, Reserved, Spot
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.round import Round
from trainmaster.core.model.where import Candidate, Option
from trainmaster.core.reconcile.plan import plan
from trainmaster.core.reconcile.steps import Create
from trainmaster.errors import RefusedError
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet.properties import resource
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Created, NotCreated


def with_a100(job: Job, **changes: Any) -> Job:
    """Return the job on machines that are placed close to each other."""
    groups = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    return replace(job, plan=change_plan(job.plan, groups=groups, **changes))


def test_placement_policy_is_shared_by_a_gang_and_deleted_at_release(
    compute: EmulatorWorld, job: Job
) -> None:
    job = with_a100(job)
    create = a_create(job)
    for _ in range(2):
        assert compute.fleet.create(job, create, metadata()) == Created()
    vms = compute.fleet.list_vms(job.job_id)
    policies = {compute.emulator.get(vm.name).resource_policies[0] for vm in vms}
    assert [url.rpartition("/")[2] for url in policies] == [
        f"{create.names[0].removesuffix('-0')}-a"
    ]
    assert not compute.fleet.release(job), "a VM has it still"
    for vm in vms:
        delete_and_wait(compute.fleet, vm)
    assert compute.fleet.release(job)
    assert compute.fleet.release(job)
    region = f"/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []


def test_placement_policy_that_the_rate_limit_refuses_is_requested_again(
    compute: EmulatorWorld, job: Job
) -> None:
    job = with_a100(job)
    compute.emulator.faults(rate_limited=1)
    assert compute.fleet.create(job, a_create(job), metadata()) == Created()
    for vm in compute.fleet.list_vms(job.job_id):
        delete_and_wait(compute.fleet, vm)
    compute.emulator.faults(rate_limited=1)
    assert compute.fleet.release(job)


def test_rejected_placement_policy_is_not_created(compute: EmulatorWorld, job: Job) -> None:
    job = with_a100(job)
    outcome = compute.fleet.create(job, a_create(job, zone="us-central9-a"), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.BLOCKED


def test_placement_policies_of_all_zones_are_released(compute: EmulatorWorld, job: Job) -> None:
    job = with_a100(job, zones=(ZONE, OTHER_ZONE))
    for zone in (ZONE, OTHER_ZONE):
        assert compute.fleet.create(job, a_create(job, zone=zone), metadata()) == Created()
    for vm in compute.fleet.list_vms(job.job_id):
        delete_and_wait(compute.fleet, vm)
    moved = replace(
        job, placement=replace(job.placement, left=(LeftZone(OTHER_ZONE, may_run=True),))
    )
    eventually(lambda: compute.fleet.release(moved))
    region = f"/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []


@pytest.mark.parametrize(
    ("reason", "expected"), [("resourceInUseByAnotherResource", False), ("invalid", RefusedError)]
)
def test_refused_deletion_of_a_policy_waits_while_it_is_in_use_and_is_otherwise_an_error(
    job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, expected: type[Exception] | bool
) -> None:
    job = with_a100(job)
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(400, reason))
    fleet = ComputeFleet(VmDefaults("p"), endpoint=NOWHERE)
    if isinstance(expected, bool):
        assert fleet.release(job) is expected
        return
    with pytest.raises(expected, match=reason):
        fleet.release(job)


def with_alternatives(job: Job) -> Job:
    """Return a job that has left n1 machines in us-central1, and is requested on A100 Spot VMs in
    us-east1.
    """
    big = tuple(
        replace(group, machine_type="a2-highgpu-1g", purchase=Purchase(Spot()))
        for group in job.plan.groups
    )
    reserved = Purchase(Reserved("my-reservation"))
    own = tuple(replace(group, purchase=reserved) for group in job.plan.groups)
    options = (Option(own), Option(big))
    zones = (ZONE, "us-east1-b", "us-west1-a")
    candidates = (
        Candidate(option=0, rank=0),
        Candidate(option=1, rank=1),
        Candidate(option=1, rank=1),
    )
    changed = change_plan(job.plan, zones=zones, options=options, candidates=candidates)
    return replace(job, plan=changed, placement=Placement(1, left=(LeftZone(ZONE, may_run=True),)))


@pytest.mark.parametrize(
    ("candidate", "region", "machine", "model", "reserved"),
    [
        (0, "us-central1", "n1-standard-4", "STANDARD", True),
        (1, "us-east1", "a2-highgpu-1g", "SPOT", False),
    ],
)
def test_vms_of_a_candidate_have_its_subnetwork_machine_and_pricing(
    job: Job, candidate: int, region: str, machine: str, model: str, reserved: bool
) -> None:
    job = with_alternatives(job)
    held = Round(is_held=True, ordered_at=START)
    job = replace(
        job, state=JobState.PREPARING, round=held, placement=Placement(candidate, left=())
    )
    steps = plan(a_state(a_replica(WORKER_0, ReplicaState.WAITING), job=job), (), START).steps
    (create,) = [step for step in steps if isinstance(step, Create)]
    subnetwork = "projects/p/regions/{region}/subnetworks/workers-{region}"
    defaults = VmDefaults("p", network="projects/p/global/networks/workers", subnetwork=subnetwork)
    requested = resource(job.placed, create, defaults, {}).instance_properties
    assert (
        requested.network_interfaces[0].subnetwork
        == f"projects/p/regions/{region}/subnetworks/workers-{region}"
    )
    assert (create.zone, requested.machine_type) == (job.plan.where.zones[candidate], machine)
    assert (requested.scheduling.provisioning_model or "STANDARD") == model
    assert bool(requested.reservation_affinity.values) is reserved


def test_policies_of_all_visited_candidates_are_deleted_and_no_others_are_touched(
    compute: EmulatorWorld, job: Job
) -> None:
    job = with_alternatives(job)
    assert (
        compute.fleet.create(job.placed, a_create(job.placed, zone="us-east1-b"), metadata())
        == Created()
    )
    for vm in compute.fleet.list_vms(job.job_id):
        delete_and_wait(compute.fleet, vm)
    back = replace(job, placement=Placement(0, left=(LeftZone("us-east1-b", may_run=True),)))
    assert compute.fleet.release(back)
    region = f"/compute/v1/projects/{PROJECT}/regions/us-east1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []
