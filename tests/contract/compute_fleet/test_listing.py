"""Listings: their fields, their pages, and VMs that are not ours."""

from __future__ import annotations

import re

import pytest
from google.cloud import compute_v1

from tests.contract.fleets import RUN, EmulatorWorld, a_create, a_fleet, metadata, sole
from tests.integration.compute.emulator import PROJECT
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.gcp.compute_fleet.listed_vms import LISTED_FIELDS
from trainmaster.gcp.retries import FIELD_MASK
from trainmaster.ports import Pending


def test_vm_under_creation_has_a_creation_time_and_no_start_time(compute: EmulatorWorld, job: Job) -> None:
    compute.emulator.faults(slow_s=0.5)
    assert a_fleet(compute.emulator, wait_s=0.1).create(job, a_create(job, 1), metadata()) == Pending()
    (each,) = compute.fleet.list_all()
    assert (each.vm.status, each.vm.started_at) == (VmStatus.CREATING, None)
    assert each.vm.created_at is not None


def test_listing_has_no_metadata_values(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, 1), {**metadata(), "other": "x" * 200_000})
    request = {"project": PROJECT, "filter": f"labels.trainmaster-job={job_label(job.job_id)}"}
    pages = compute.emulator.instances.aggregated_list(request, metadata=[(FIELD_MASK, LISTED_FIELDS)])
    (instance,) = (instance for _, scope in pages for instance in scope.instances)
    assert not instance.metadata.items
    vm = sole(compute.fleet, job)
    assert (vm.directive, vm.fingerprint) == (RUN, instance.metadata.fingerprint)
    assert vm.status is VmStatus.RUNNING
    assert None not in (vm.created_at, vm.started_at)


def test_listed_fields_exist() -> None:
    """Google refuses a mask with a field that no instance can have."""
    names = re.findall(r"[A-Za-z]+", LISTED_FIELDS.partition("(")[2].partition(")")[0])
    known = {field.json_name for field in compute_v1.Instance.pb().DESCRIPTOR.fields}
    assert set(names) - {"fingerprint"} <= known


def test_vms_of_all_pages_are_listed(compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    compute.fleet.create(job, a_create(job, 3), metadata())
    monkeypatch.setattr("trainmaster.gcp.compute_fleet.fleet.PAGE_SIZE", 1)
    assert {vm.name for vm in compute.fleet.list_vms(job.job_id)} == set(a_create(job, 3).names)
    assert len(compute.fleet.list_all()) == 3


def test_vm_with_our_label_but_a_foreign_name_is_not_listed(compute: EmulatorWorld, job: Job) -> None:
    compute.emulator.run("somebody-elses", labels={"trainmaster-job": job_label(job.job_id)})
    assert compute.fleet.list_vms(job.job_id) == ()
    assert compute.fleet.list_all() == ()
