"""Placement policies of gangs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import requests

from tests.contract.compute_fleet.answers import a_response
from tests.contract.fleets import OTHER_ZONE, EmulatorWorld, a_create, gone, metadata
from tests.integration.compute.emulator import PROJECT, ZONE, eventually
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Created, NotCreated


def with_a100(job: Job, **changes: Any) -> Job:
    """Return the job on machines that are placed close to each other."""
    groups = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    return replace(job, plan=replace(job.plan, groups=groups, **changes))


def test_placement_policy_is_shared_by_a_gang_and_deleted_at_release(compute: EmulatorWorld, job: Job) -> None:
    job = with_a100(job)
    create = a_create(job)
    for _ in range(2):
        assert compute.fleet.create(job, create, metadata()) == Created()
    vms = compute.fleet.list_vms(job.job_id)
    policies = {compute.emulator.get(vm.name).resource_policies[0] for vm in vms}
    assert [url.rpartition("/")[2] for url in policies] == [f"{create.names[0].removesuffix('-0')}-a"]
    assert not compute.fleet.release(job), "a VM has it still"
    for vm in vms:
        gone(compute.fleet, vm)
    assert compute.fleet.release(job)
    assert compute.fleet.release(job)
    region = f"/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []


def test_placement_policy_that_the_rate_limit_refuses_is_requested_again(compute: EmulatorWorld, job: Job) -> None:
    job = with_a100(job)
    compute.emulator.faults(rate_limited=1)
    assert compute.fleet.create(job, a_create(job), metadata()) == Created()
    for vm in compute.fleet.list_vms(job.job_id):
        gone(compute.fleet, vm)
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
        gone(compute.fleet, vm)
    eventually(lambda: compute.fleet.release(job))
    region = f"/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []


@pytest.mark.parametrize(
    ("reason", "expected"), [("resourceInUseByAnotherResource", False), ("invalid", PermanentError)]
)
def test_refused_deletion_of_a_policy_waits_while_it_is_in_use_and_is_otherwise_an_error(
    job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, expected: type[Exception] | bool
) -> None:
    job = with_a100(job)
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(400, reason))
    fleet = ComputeFleet(VmDefaults("p"), endpoint="http://127.0.0.1:9")
    if isinstance(expected, bool):
        assert fleet.release(job) is expected
        return
    with pytest.raises(expected, match=reason):
        fleet.release(job)
