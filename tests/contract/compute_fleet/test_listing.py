"""Listings: their fields, their pages, and VMs that are not ours."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from google.cloud import compute_v1

from tests.contract.fleets import (
    OTHER_ZONE,
    RUN,
    EmulatorWorld,
    a_create,
    a_fleet,
    metadata,
    only_vm,
)
from tests.integration.compute.emulator import PROJECT, ZONE
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.errors import TemporaryError
from trainmaster.gcp import retries
from trainmaster.gcp.compute_fleet.listing import LISTED_FIELDS
from trainmaster.gcp.retries import FIELD_MASK
from trainmaster.ports import Pending, reached


def test_vm_under_creation_has_a_creation_time_and_no_start_time(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.emulator.faults(slow_s=0.5)
    assert (
        a_fleet(compute.emulator, wait_s=0.1).create(job, a_create(job, workers=1), metadata())
        == Pending()
    )
    (each,) = compute.fleet.list_all()
    assert (each.vm.status, each.vm.started_at) == (VmStatus.CREATING, None)
    assert each.vm.created_at is not None


def test_listing_has_no_metadata_values(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, workers=1), {**metadata(), "other": "x" * 200_000})
    request = {"project": PROJECT, "filter": f"labels.trainmaster-job={job_label(job.job_id)}"}
    pages = compute.emulator.instances.aggregated_list(
        request, metadata=[(FIELD_MASK, LISTED_FIELDS)]
    )
    (instance,) = (instance for _, scope in pages for instance in scope.instances)
    assert not instance.metadata.items
    vm = only_vm(compute.fleet, job)
    assert (vm.directive, vm.fingerprint) == (RUN, instance.metadata.fingerprint)
    assert vm.status is VmStatus.RUNNING
    assert None not in (vm.created_at, vm.started_at)


def test_listed_fields_exist() -> None:
    """Google refuses a mask with a field that no instance can have."""
    names = re.findall(r"[A-Za-z]+", LISTED_FIELDS.partition("(")[2].partition(")")[0])
    known = {field.json_name for field in compute_v1.Instance.pb().DESCRIPTOR.fields}
    assert set(names) - {"fingerprint"} <= known


def test_vms_of_all_pages_are_listed(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=3), metadata())
    monkeypatch.setattr("trainmaster.gcp.compute_fleet.listing.PAGE_SIZE", 1)
    assert {vm.name for vm in compute.fleet.list_vms(job.job_id)} == set(
        a_create(job, workers=3).names
    )
    assert len(compute.fleet.list_all()) == 3


def test_vm_with_our_label_but_a_foreign_name_is_not_listed(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.emulator.run("somebody-elses", labels={"trainmaster-job": job_label(job.job_id)})
    assert compute.fleet.list_vms(job.job_id) == ()
    assert compute.fleet.list_all() == ()


@pytest.mark.parametrize(
    "is_strict", [False, True], ids=["the list names the zone", "the list fails"]
)
def test_zone_that_cannot_be_reached_is_named_and_other_zones_are_listed(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch, is_strict: bool
) -> None:
    monkeypatch.setattr(retries, "FLEET_READ", {"retry": None})
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    compute.fleet.create(job, a_create(job, workers=1, zone=OTHER_ZONE), metadata())
    compute.emulator.faults(unreachable_zones=[ZONE, "us-east1-b"], strict_lists=is_strict)
    vms, unreachable, _ = reached(
        lambda: compute.fleet.list_vms(job.job_id, zones=(ZONE, OTHER_ZONE))
    )
    assert ([vm.zone for vm in vms], unreachable) == ([OTHER_ZONE], (ZONE,))
    listed, unreachable, _ = reached(lambda: compute.fleet.list_all((ZONE, OTHER_ZONE)))
    assert ([item.vm.zone for item in listed], ZONE in unreachable) == ([OTHER_ZONE], True)
    with pytest.raises(TemporaryError, match=r"unreachable|cannot reach"):
        compute.fleet.list_vms(job.job_id)
    with pytest.raises(TemporaryError, match="unreachable"):
        compute.fleet.delete(replace(vms[0], zone=ZONE))


def test_list_whose_field_mask_is_refused_is_read_without_it(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    for name in ("LISTED_FIELDS", "LISTED_FIELDS_OF_ZONE"):
        monkeypatch.setattr(f"trainmaster.gcp.compute_fleet.listing.{name}", "items((")
    assert only_vm(compute.fleet, job).zone == ZONE


@pytest.mark.parametrize(
    "fault", [{"refused_calls": ["aggregated_instances"]}, {"disabled_apis": ["compute"]}]
)
def test_list_that_is_refused_can_be_repaired(
    compute: EmulatorWorld, job: Job, fault: dict[str, list[str]]
) -> None:
    compute.emulator.faults(**fault)
    with pytest.raises(
        TemporaryError, match=r"which an operator can repair: (forbidden|accessNotConfigured)"
    ):
        compute.fleet.list_vms(job.job_id, zones=(ZONE,))
