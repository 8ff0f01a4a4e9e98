"""Creating VMs on Compute Engine's emulator: what the fleet in memory cannot do, such
as fail late.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
import requests
from google.cloud import compute_v1

from tests.contract.compute_fleet.answers import a_response
from tests.contract.fleets import (
    NOWHERE,
    OTHER_ZONE,
    EmulatorWorld,
    a_create,
    a_fleet,
    delete_and_wait,
    metadata,
    only_vm,
)
from tests.integration.compute.emulator import PROJECT, ZONE, Emulator
from tests.support.jobs import a_job, a_plan, change_plan
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.timeouts import FUSE_SLACK_S
from trainmaster.errors import TemporaryError
from trainmaster.gcp.call_problem import Problem
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet import fleet as adapter
from trainmaster.gcp.compute_fleet.errors import name_exists, not_created
from trainmaster.gcp.compute_fleet.operations import Operations
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Created, NotCreated, Pending


def test_stockout_keeps_googles_message_and_suggested_zones(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.stock_out(ZONE, OTHER_ZONE)
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.zones_available == ("us-central1-c", "us-central1-f")
    assert f"zones/{ZONE}' does not have enough resources" in outcome.message
    compute.stock_out()
    # The same request, the same answer.
    assert compute.fleet.create(job, a_create(job), metadata()) == outcome
    assert compute.fleet.create(job, a_create(job, round=1), metadata()) == Created()


def test_exhausted_quota_is_a_capacity_error_of_kind_quota(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.emulator.faults(quota_regions=["us-central1"])
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED")


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ({"machine_type": "n9-standard-4"}, CapacityErrorKind.STOCKOUT),
        ({"boot_disk_gib": 100}, None),
    ],
    ids=["a machine type this zone lacks", "all well"],
)
def test_error_of_the_insert_call_is_not_created(
    compute: EmulatorWorld, job: Job, group: dict[str, Any], kind: CapacityErrorKind | None
) -> None:
    create = a_create(job)
    outcome = compute.fleet.create(
        job, replace(create, group=replace(create.group, **group)), metadata()
    )
    assert (outcome.kind if isinstance(outcome, NotCreated) else None) is kind


def test_too_large_metadata_is_denied(compute: EmulatorWorld, job: Job) -> None:
    outcome = compute.fleet.create(
        job, a_create(job), {**metadata(), "trainmaster-vm-config": "x" * 300_000}
    )
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (CapacityErrorKind.DENIED, "invalid")


def test_slow_insert_is_pending_and_found_by_the_next_call(
    compute: EmulatorWorld, job: Job
) -> None:
    impatient = a_fleet(compute.emulator, wait_s=0.2)
    compute.emulator.faults(slow_s=0.4)
    assert impatient.create(job, a_create(job), metadata()) == Pending()
    assert {vm.status for vm in impatient.list_vms(job.job_id)} == {VmStatus.CREATING}
    assert compute.fleet.create(job, a_create(job), metadata()) == Created()
    assert len(compute.fleet.list_vms(job.job_id)) == 2


def test_foreign_vm_with_our_name_is_denied_and_not_listed(
    compute: EmulatorWorld, job: Job
) -> None:
    name = a_create(job).names[1]
    compute.emulator.run(name, labels={"owner": "somebody"})
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.DENIED
    assert compute.fleet.list_vms(job.job_id) == ()


def test_create_is_pending_while_an_earlier_vm_has_the_name(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    assert (
        compute.fleet.create(job, a_create(job, workers=1, vm_generation=2), metadata())
        == Pending()
    )
    delete_and_wait(compute.fleet, only_vm(compute.fleet, job))
    assert (
        compute.fleet.create(job, a_create(job, workers=1, vm_generation=2), metadata())
        == Created()
    )
    assert only_vm(compute.fleet, job).vm_generation == 2


def test_created_vm_has_the_settings_of_job_and_installation(emulator: Emulator) -> None:
    gpu = Accelerator("nvidia-tesla-t4", 2)
    plan = a_plan(max_running_s=1000, max_wait_s=500)
    image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    groups = tuple(replace(group, accelerator=gpu) for group in plan.groups)
    plan = change_plan(plan, source=image, groups=groups)
    job = a_job(plan=plan, job_id=f"Digits_{uuid.uuid4().hex[:8]}")
    defaults = VmDefaults(
        PROJECT,
        service_account="vm@p.iam.gserviceaccount.com",
        subnetwork="regions/us-central1/subnetworks/s",
    )
    fleet = a_fleet(emulator, defaults)
    assert fleet.create(job, a_create(job, workers=1), metadata()) == Created()
    vm = emulator.get(only_vm(fleet, job).name)
    assert dict(vm.labels) == {
        "trainmaster-job": job_label(job.job_id),
        "trainmaster-task": "worker",
        "trainmaster-attempt": "1",
        "trainmaster-vm-generation": "1",
        "trainmaster-directive": "1-1-run",
    }
    assert vm.scheduling.max_run_duration.seconds == 1000 + 500 + FUSE_SLACK_S
    assert vm.scheduling.instance_termination_action == "DELETE"
    assert (vm.scheduling.on_host_maintenance, vm.scheduling.automatic_restart) == (
        "TERMINATE",
        False,
    )
    assert [accelerator.accelerator_count for accelerator in vm.guest_accelerators] == [2]
    assert [account.email for account in vm.service_accounts] == ["vm@p.iam.gserviceaccount.com"]
    assert (vm.disks[0].boot, vm.disks[0].auto_delete, vm.disks[0].disk_size_gb) == (
        True,
        True,
        100,
    )
    assert vm.network_interfaces[0].subnetwork == "regions/us-central1/subnetworks/s"
    assert not vm.network_interfaces[0].access_configs
    secure = vm.shielded_instance_config
    assert (secure.enable_secure_boot, secure.enable_vtpm, secure.enable_integrity_monitoring) == (
        False,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", CapacityErrorKind.STOCKOUT),
        (403, "quotaExceeded", CapacityErrorKind.QUOTA),
        (403, "forbidden", CapacityErrorKind.BLOCKED),
        (403, "accessNotConfigured", CapacityErrorKind.BLOCKED),
        (404, "notFound", CapacityErrorKind.BLOCKED),
        (400, "invalid", CapacityErrorKind.DENIED),
        (503, "backendError", None),
        (400, "resourceNotReady", None),
    ],
)
def test_insert_that_the_call_refuses_is_not_created_or_temporary(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    reason: str,
    expected: CapacityErrorKind | None,
) -> None:
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(status, reason))
    fleet = ComputeFleet(VmDefaults("p"), endpoint=NOWHERE)
    if expected is None:
        with pytest.raises(TemporaryError, match=reason):
            fleet.create(job, a_create(job), metadata())
        return
    outcome = fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (expected, reason)


def test_create_is_pending_while_a_vm_of_this_generation_stops(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SETTLE_S", 0.1)
    compute.fleet.create(job, a_create(job, workers=1), metadata())
    compute.emulator.faults(slow_s=1.0)
    assert not compute.fleet.delete(only_vm(compute.fleet, job))
    assert compute.fleet.create(job, a_create(job, workers=1, round=1), metadata()) == Pending()


def test_vm_of_the_same_name_in_another_zone_is_not_taken_for_the_created_one(
    compute: EmulatorWorld, job: Job
) -> None:
    assert (
        compute.fleet.create(job, a_create(job, workers=1, zone=OTHER_ZONE), metadata())
        == Created()
    )
    compute.emulator.run(a_create(job, workers=1).names[0], labels={"owner": "somebody"})
    outcome = compute.fleet.create(job, a_create(job, workers=1), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.DENIED


@pytest.mark.parametrize(
    "existing", [0, 1], ids=["none exists any more", "another delivery inserts the rest"]
)
def test_create_is_pending_if_names_were_taken_and_freed_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch, existing: int
) -> None:
    if existing:
        compute.fleet.create(job, a_create(job, workers=existing), metadata())
    taken = NotCreated(CapacityErrorKind.DENIED, "alreadyExists", "the name is in use")
    monkeypatch.setattr(compute.fleet, "_insert", lambda *_: taken)
    assert compute.fleet.create(job, a_create(job, workers=2, round=1), metadata()) == Pending()


@pytest.mark.parametrize(
    ("code", "kind", "is_taken"),
    [
        ("INVALID_FIELD_VALUE", CapacityErrorKind.STOCKOUT, False),
        ("INTERNAL_ERROR", CapacityErrorKind.INTERNAL, False),
        ("QUOTA_EXCEEDED", CapacityErrorKind.QUOTA, False),
        ("RESOURCE_ALREADY_EXISTS", CapacityErrorKind.INTERNAL, True),
    ],
)
def test_error_about_a_machine_type_is_a_stockout_because_another_zone_may_have_it(
    code: str, kind: CapacityErrorKind, is_taken: bool
) -> None:
    outcome = not_created(Problem(code, "zones/us-central1-a/machineTypes/a2-highgpu-1g"))
    assert (outcome.kind, name_exists(outcome)) == (kind, is_taken)


def test_cause_of_an_insert_that_gave_up_is_an_error_of_its_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failed(code: str, group: str) -> compute_v1.Operation:
        error = compute_v1.Error(errors=[compute_v1.Errors(code=code, message="no")])
        return compute_v1.Operation(operation_group_id=group, error=error)

    members = [failed("QUOTA_EXCEEDED", "other"), failed("ZONE_RESOURCE_POOL_EXHAUSTED", "ours")]
    operations = Operations("p", NOWHERE)

    def listed(
        request: compute_v1.ListZoneOperationsRequest, **_: object
    ) -> list[compute_v1.Operation]:
        return [
            member
            for member in members
            if f'operationGroupId="{member.operation_group_id}"' == request.filter
        ]

    monkeypatch.setattr(operations._zones, "list", listed)
    gave_up = failed("VM_MIN_COUNT_NOT_REACHED", "ours")
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == [
        "ZONE_RESOURCE_POOL_EXHAUSTED"
    ]
    members.append(failed("QUOTA_EXCEEDED", "ours"))
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == [
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "QUOTA_EXCEEDED",
    ]
    members.clear()
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == [
        "VM_MIN_COUNT_NOT_REACHED"
    ]
    assert operations.causes(ZONE, compute_v1.Operation()) == []
