"""The Fleet on Compute Engine's emulator: what only a cloud can do, as failing later, or having strangers' VMs."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import requests
from google.cloud import compute_v1

from shared.core.events import CapacityErrorKind
from shared.core.model.job import Job
from shared.core.model.plan import Accelerator
from shared.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from shared.core.model.vm_names import job_label
from shared.errors import PermanentError, TemporaryError
from shared.gcp.addresses import DnsAddresses, EmulatorAddresses
from shared.gcp.compute_fleet import ComputeFleet
from shared.gcp.compute_fleet import fleet as adapter
from shared.gcp.compute_fleet.errors import name_exists, not_created
from shared.gcp.compute_fleet.listed_vms import LISTED_FIELDS
from shared.gcp.compute_fleet.operations import Operations
from shared.gcp.retries import FIELD_MASK, FLEET_READ
from shared.gcp.vm_defaults import Problem
from shared.ports import Created, Fleet, NotCreated, Pending
from tests.contract.fleets import (
    OTHER_ZONE,
    RUN,
    EmulatorWorld,
    MemoryWorld,
    a_create,
    a_fleet,
    gone,
    metadata,
    sole,
)
from tests.integration.compute.emulator import PROJECT, ZONE, Emulator, eventually
from tests.support.jobs import a_job, a_plan


def test_vm_under_creation_has_a_creation_time_and_no_start_time(compute: EmulatorWorld, job: Job) -> None:
    compute.emulator.faults(slow_s=0.5)
    assert a_fleet(compute.emulator, wait_s=0.1).create(job, a_create(job, 1), metadata()) == Pending()
    (each,) = compute.fleet.list_all()
    assert (each.vm.status, each.vm.started_at) == (VmStatus.CREATING, None)
    assert each.vm.created_at is not None


def test_writing_a_directive_keeps_the_other_metadata(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, 1), {**metadata(), "other": "kept"})
    vm = sole(compute.fleet, job)
    hold = Directive(1, 2, DirectiveAction.HOLD)
    assert compute.fleet.write_directive(vm, hold)
    assert compute.metadata(vm) == {**metadata(hold), "other": "kept"}


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


def test_directive_whose_label_is_missing_gets_it_from_the_next_call(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    hold = Directive(1, 2, DirectiveAction.HOLD)
    with monkeypatch.context() as patch:
        patch.setattr(compute.fleet._directives, "_write_label", lambda *_: False)
        assert not compute.fleet.write_directive(sole(compute.fleet, job), hold)
    vm = sole(compute.fleet, job)
    assert vm.directive == RUN, "the label is behind"
    assert compute.metadata(vm) == metadata(hold)
    assert compute.fleet.write_directive(vm, hold)
    assert sole(compute.fleet, job) == replace(vm, directive=hold), "the metadata was not written again"


def test_directive_that_is_behind_the_metadata_is_not_written(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery with a newer state has written the metadata, and not yet the label."""
    compute.fleet.create(job, a_create(job, 1), metadata())
    newer = Directive(1, 3, DirectiveAction.RUN)
    with monkeypatch.context() as patch:
        patch.setattr(compute.fleet._directives, "_write_label", lambda *_: False)
        compute.fleet.write_directive(sole(compute.fleet, job), newer)
    vm = sole(compute.fleet, job)
    assert not compute.fleet.write_directive(vm, Directive(1, 2, DirectiveAction.HOLD))
    assert compute.metadata(vm) == metadata(newer)


def test_change_that_the_rate_limit_refuses_is_sent_again(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(compute.fleet, job)
    compute.emulator.faults(rate_limited=1)
    compute.fleet.delete(vm)
    gone(compute.fleet, vm)
    assert compute.fleet.list_vms(job.job_id) == ()


def test_stockout_keeps_googles_message_and_suggested_zones(compute: EmulatorWorld, job: Job) -> None:
    compute.stock_out(ZONE, OTHER_ZONE)
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.zones_available == ("us-central1-c", "us-central1-f")
    assert f"zones/{ZONE}' does not have enough resources" in outcome.message
    compute.stock_out()
    assert compute.fleet.create(job, a_create(job), metadata()) == outcome  # the same request, the same answer
    assert compute.fleet.create(job, a_create(job, round=1), metadata()) == Created()


def test_exhausted_quota_is_a_capacity_error_of_kind_quota(compute: EmulatorWorld, job: Job) -> None:
    compute.emulator.faults(quota_regions=["us-central1"])
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED")


@pytest.mark.parametrize(
    ("group", "kind"),
    [({"machine_type": "n9-standard-4"}, CapacityErrorKind.STOCKOUT), ({"boot_disk_gib": 100}, None)],
    ids=["a machine type this zone lacks", "all well"],
)
def test_error_of_the_insert_call_is_not_created(
    compute: EmulatorWorld, job: Job, group: dict[str, Any], kind: CapacityErrorKind | None
) -> None:
    create = a_create(job)
    outcome = compute.fleet.create(job, replace(create, group=replace(create.group, **group)), metadata())
    assert (outcome.kind if isinstance(outcome, NotCreated) else None) is kind


def test_too_large_metadata_is_denied(compute: EmulatorWorld, job: Job) -> None:
    outcome = compute.fleet.create(job, a_create(job), {**metadata(), "trainmaster-vm-config": "x" * 300_000})
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (CapacityErrorKind.DENIED, "invalid")


def test_slow_insert_is_pending_and_found_by_the_next_call(compute: EmulatorWorld, job: Job) -> None:
    impatient = a_fleet(compute.emulator, wait_s=0.2)
    compute.emulator.faults(slow_s=0.4)
    assert impatient.create(job, a_create(job), metadata()) == Pending()
    assert {vm.status for vm in impatient.list_vms(job.job_id)} == {VmStatus.CREATING}
    assert compute.fleet.create(job, a_create(job), metadata()) == Created()
    assert len(compute.fleet.list_vms(job.job_id)) == 2


def test_foreign_vm_with_our_name_is_denied_and_not_listed(compute: EmulatorWorld, job: Job) -> None:
    name = a_create(job).names[1]
    compute.emulator.run(name, labels={"owner": "somebody"})
    outcome = compute.fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.DENIED
    assert compute.fleet.list_vms(job.job_id) == ()


def test_create_is_pending_while_an_earlier_vm_has_the_name(compute: EmulatorWorld, job: Job) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    assert compute.fleet.create(job, a_create(job, 1, vm_generation=2), metadata()) == Pending()
    gone(compute.fleet, sole(compute.fleet, job))
    assert compute.fleet.create(job, a_create(job, 1, vm_generation=2), metadata()) == Created()
    assert sole(compute.fleet, job).vm_generation == 2


def test_slow_delete_returns_false_until_the_vm_is_gone(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.gcp.compute_fleet.fleet.SETTLE_S", 0.1)
    compute.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(compute.fleet, job)
    compute.emulator.faults(slow_s=0.5)
    assert not compute.fleet.delete(vm)
    assert sole(compute.fleet, job).status is VmStatus.STOPPING
    gone(compute.fleet, vm)


def test_created_vm_has_the_settings_of_job_and_installation(emulator: Emulator) -> None:
    gpu = Accelerator("nvidia-tesla-t4", 2)
    plan = a_plan(max_running_s=1000, max_wait_s=500)
    image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    plan = replace(plan, image=image, groups=tuple(replace(group, accelerator=gpu) for group in plan.groups))
    job = a_job(plan=plan, job_id=f"Digits_{uuid.uuid4().hex[:8]}")
    fleet = a_fleet(
        emulator, service_account="vm@p.iam.gserviceaccount.com", subnetwork="regions/us-central1/subnetworks/s"
    )
    assert fleet.create(job, a_create(job, 1), metadata()) == Created()
    vm = emulator.get(sole(fleet, job).name)
    assert dict(vm.labels) == {
        "trainmaster-job": job_label(job.job_id),
        "trainmaster-task": "worker",
        "trainmaster-attempt": "1",
        "trainmaster-vm-generation": "1",
        "trainmaster-directive": "1-1-run",
    }
    assert vm.scheduling.max_run_duration.seconds == 1000 + 500 + 3600
    assert vm.scheduling.instance_termination_action == "DELETE"
    assert (vm.scheduling.on_host_maintenance, vm.scheduling.automatic_restart) == ("TERMINATE", False)
    assert [accelerator.accelerator_count for accelerator in vm.guest_accelerators] == [2]
    assert [account.email for account in vm.service_accounts] == ["vm@p.iam.gserviceaccount.com"]
    assert (vm.disks[0].boot, vm.disks[0].auto_delete, vm.disks[0].disk_size_gb) == (True, True, 100)
    assert vm.network_interfaces[0].subnetwork == "regions/us-central1/subnetworks/s"
    assert not vm.network_interfaces[0].access_configs
    secure = vm.shielded_instance_config
    assert (secure.enable_secure_boot, secure.enable_vtpm, secure.enable_integrity_monitoring) == (False, True, True)


def test_placement_policy_is_shared_by_a_gang_and_deleted_at_release(compute: EmulatorWorld, job: Job) -> None:
    a100 = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    job = replace(job, plan=replace(job.plan, groups=a100))
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
    a100 = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    job = replace(job, plan=replace(job.plan, groups=a100))
    compute.emulator.faults(rate_limited=1)
    assert compute.fleet.create(job, a_create(job), metadata()) == Created()
    for vm in compute.fleet.list_vms(job.job_id):
        gone(compute.fleet, vm)
    compute.emulator.faults(rate_limited=1)
    assert compute.fleet.release(job)


def test_rejected_placement_policy_is_not_created(compute: EmulatorWorld, job: Job) -> None:
    a100 = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    job = replace(job, plan=replace(job.plan, groups=a100))
    outcome = compute.fleet.create(job, a_create(job, zone="us-central9-a"), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.DENIED


def test_vms_of_all_pages_are_listed(compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    compute.fleet.create(job, a_create(job, 3), metadata())
    monkeypatch.setattr("shared.gcp.compute_fleet.fleet.PAGE_SIZE", 1)
    assert {vm.name for vm in compute.fleet.list_vms(job.job_id)} == set(a_create(job, 3).names)
    assert len(compute.fleet.list_all()) == 3


def test_directive_is_not_written_over_metadata_that_changes_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(compute.fleet, job)
    other = a_fleet(compute.emulator)
    later = Directive(1, 3, DirectiveAction.RUN)
    after_reading(compute.fleet, lambda: other.write_directive(vm, later), monkeypatch)
    assert not compute.fleet.write_directive(vm, Directive(1, 2, DirectiveAction.HOLD))
    assert compute.metadata(vm) == metadata(later)
    assert sole(compute.fleet, job).directive == later


def test_label_is_not_written_over_labels_that_change_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(compute.fleet, job)
    after_reading(compute.fleet, lambda: add_label(compute.emulator, vm, "owner", "somebody"), monkeypatch)
    hold = Directive(1, 2, DirectiveAction.HOLD)
    assert not compute.fleet.write_directive(vm, hold)
    assert compute.emulator.get(vm.name).labels["owner"] == "somebody"
    assert compute.fleet.write_directive(sole(compute.fleet, job), hold)
    assert compute.emulator.get(vm.name).labels["owner"] == "somebody"


def after_reading(fleet: Fleet, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let somebody change the VM right after the fleet has read it for the first time."""
    instances: Any = fleet._instances  # type: ignore[attr-defined]
    get = instances.get

    def get_then_change(*args: object, **options: object) -> object:
        found = get(*args, **options)
        monkeypatch.setattr(instances, "get", get)
        change()
        return found

    monkeypatch.setattr(instances, "get", get_then_change)


def add_label(emulator: Emulator, vm: Vm, key: str, value: str) -> None:
    instance = emulator.get(vm.name)
    request = compute_v1.InstancesSetLabelsRequest(
        label_fingerprint=instance.label_fingerprint, labels={**instance.labels, key: value}
    )
    operation = emulator.instances.set_labels_unary(
        project=PROJECT, zone=vm.zone, instance=vm.name, instances_set_labels_request_resource=request
    )
    assert not emulator.done(operation).error.errors


def test_placement_policies_of_all_zones_are_released(compute: EmulatorWorld, job: Job) -> None:
    a100 = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    job = replace(job, plan=replace(job.plan, groups=a100, zones=(ZONE, OTHER_ZONE)))
    for zone in (ZONE, OTHER_ZONE):
        assert compute.fleet.create(job, a_create(job, zone=zone), metadata()) == Created()
    for vm in compute.fleet.list_vms(job.job_id):
        gone(compute.fleet, vm)
    eventually(lambda: compute.fleet.release(job))
    region = f"/compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    assert compute.emulator.call(region)["items"] == []


def a_response(status: int, reason: str) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response.request = requests.Request("GET", "http://127.0.0.1:9").prepare()
    errors = [{"reason": reason, "message": "no"}]
    response._content = json.dumps({"error": {"code": status, "message": "no", "errors": errors}}).encode()
    return response


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (403, "forbidden", None),
        (404, "notFound", None),
        (403, "rateLimitExceeded", TemporaryError),
        (503, "backendError", TemporaryError),
        (400, "invalid", PermanentError),
    ],
)
def test_metric_that_may_not_be_read_is_unknown_and_other_failures_are_errors(
    job: Job, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, expected: type[Exception] | None
) -> None:
    memory = MemoryWorld()
    memory.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(memory.fleet, job)
    monkeypatch.setattr(adapter, "FLEET_READ", {**FLEET_READ, "retry": None})
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(status, reason))
    fleet = ComputeFleet("p", endpoint="http://127.0.0.1:9")
    if expected is None:
        assert fleet.reported_metric(vm) is None
        return
    with pytest.raises(expected, match=f"read trainmaster/metric of {vm.name}: {reason}"):
        fleet.reported_metric(vm)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", CapacityErrorKind.STOCKOUT),
        (403, "quotaExceeded", CapacityErrorKind.QUOTA),
        (403, "forbidden", CapacityErrorKind.DENIED),
        (503, "backendError", None),
        (400, "resourceNotReady", None),
    ],
)
def test_insert_that_the_call_refuses_is_not_created_or_temporary(
    job: Job, monkeypatch: pytest.MonkeyPatch, status: int, reason: str, expected: CapacityErrorKind | None
) -> None:
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(status, reason))
    fleet = ComputeFleet("p", endpoint="http://127.0.0.1:9")
    if expected is None:
        with pytest.raises(TemporaryError, match=reason):
            fleet.create(job, a_create(job), metadata())
        return
    outcome = fleet.create(job, a_create(job), metadata())
    assert isinstance(outcome, NotCreated)
    assert (outcome.kind, outcome.code) == (expected, reason)


@pytest.mark.parametrize(("reason", "expected"), [("resourceNotReady", False), ("invalid", PermanentError)])
def test_delete_that_the_call_refuses(
    job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, expected: type[Exception] | bool
) -> None:
    memory = MemoryWorld()
    memory.fleet.create(job, a_create(job, 1), metadata())
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(400, reason))
    fleet = ComputeFleet("p", endpoint="http://127.0.0.1:9")
    if isinstance(expected, bool):
        assert fleet.delete(sole(memory.fleet, job)) is expected
        return
    with pytest.raises(expected, match=reason):
        fleet.delete(sole(memory.fleet, job))


def test_change_whose_operation_fails_has_not_happened(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute.fleet.create(job, a_create(job, 1), metadata())
    vm = sole(compute.fleet, job)
    error = compute_v1.Error(errors=[compute_v1.Errors(code="INTERNAL_ERROR", message="no")])
    failed = compute_v1.Operation(status=compute_v1.Operation.Status.DONE, error=error)
    monkeypatch.setattr(compute.fleet._operations, "in_zone", lambda *_: failed)
    assert not compute.fleet.write_directive(vm, Directive(1, 2, DirectiveAction.HOLD))
    assert not compute.fleet.delete(vm)


def test_create_is_pending_while_a_vm_of_this_generation_stops(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SETTLE_S", 0.1)
    compute.fleet.create(job, a_create(job, 1), metadata())
    compute.emulator.faults(slow_s=1.0)
    assert not compute.fleet.delete(sole(compute.fleet, job))
    assert compute.fleet.create(job, a_create(job, 1, round=1), metadata()) == Pending()


def test_vm_of_the_same_name_in_another_zone_is_not_taken_for_the_created_one(compute: EmulatorWorld, job: Job) -> None:
    assert compute.fleet.create(job, a_create(job, 1, zone=OTHER_ZONE), metadata()) == Created()
    compute.emulator.run(a_create(job, 1).names[0], labels={"owner": "somebody"})
    outcome = compute.fleet.create(job, a_create(job, 1), metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.DENIED


@pytest.mark.parametrize("existing", [0, 1], ids=["none exists any more", "another delivery inserts the rest"])
def test_create_is_pending_if_names_were_taken_and_freed_meanwhile(
    compute: EmulatorWorld, job: Job, monkeypatch: pytest.MonkeyPatch, existing: int
) -> None:
    if existing:
        compute.fleet.create(job, a_create(job, existing), metadata())
    taken = NotCreated(CapacityErrorKind.DENIED, "alreadyExists", "the name is in use")
    monkeypatch.setattr(compute.fleet, "_insert", lambda *_: taken)
    assert compute.fleet.create(job, a_create(job, 2, round=1), metadata()) == Pending()


@pytest.mark.parametrize(
    ("code", "kind", "is_taken"),
    [
        ("INVALID_FIELD_VALUE", CapacityErrorKind.STOCKOUT, False),
        ("INTERNAL_ERROR", CapacityErrorKind.INTERNAL, False),
        ("QUOTA_EXCEEDED", CapacityErrorKind.QUOTA, False),
        ("RESOURCE_ALREADY_EXISTS", CapacityErrorKind.INTERNAL, True),
    ],
)
def test_only_a_denied_machine_type_may_be_in_another_zone(code: str, kind: CapacityErrorKind, is_taken: bool) -> None:
    outcome = not_created(Problem(code, "zones/us-central1-a/machineTypes/a2-highgpu-1g"))
    assert (outcome.kind, name_exists(outcome)) == (kind, is_taken)


def test_cause_of_an_insert_that_gave_up_is_an_error_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(code: str, group: str) -> compute_v1.Operation:
        error = compute_v1.Error(errors=[compute_v1.Errors(code=code, message="no")])
        return compute_v1.Operation(operation_group_id=group, error=error)

    members = [failed("QUOTA_EXCEEDED", "other"), failed("ZONE_RESOURCE_POOL_EXHAUSTED", "ours")]
    operations = Operations("p", "http://127.0.0.1:9")

    def listed(request: compute_v1.ListZoneOperationsRequest, **_: object) -> list[compute_v1.Operation]:
        return [one for one in members if f'operationGroupId="{one.operation_group_id}"' == request.filter]

    monkeypatch.setattr(operations._zones, "list", listed)
    gave_up = failed("VM_MIN_COUNT_NOT_REACHED", "ours")
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == ["ZONE_RESOURCE_POOL_EXHAUSTED"]
    members.append(failed("QUOTA_EXCEEDED", "ours"))
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == [
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "QUOTA_EXCEEDED",
    ]
    members.clear()
    assert [cause.code for cause in operations.causes(ZONE, gave_up)] == ["VM_MIN_COUNT_NOT_REACHED"]
    assert operations.causes(ZONE, compute_v1.Operation()) == []


@pytest.mark.parametrize(
    ("reason", "expected"), [("resourceInUseByAnotherResource", False), ("invalid", PermanentError)]
)
def test_policy_whose_deletion_is_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch, reason: str, expected: type[Exception] | bool
) -> None:
    a100 = tuple(replace(group, machine_type="a2-highgpu-1g") for group in job.plan.groups)
    job = replace(job, plan=replace(job.plan, groups=a100))
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: a_response(400, reason))
    fleet = ComputeFleet("p", endpoint="http://127.0.0.1:9")
    if isinstance(expected, bool):
        assert fleet.release(job) is expected
        return
    with pytest.raises(expected, match=reason):
        fleet.release(job)


def test_serial_output_continues_from_the_given_offset(compute: EmulatorWorld, job: Job) -> None:
    script = {"startup-script": "echo one; sleep 0.5; echo two; sleep 600"}
    compute.fleet.create(job, a_create(job, 1), {**metadata(), **script})
    vm = sole(compute.fleet, job)
    eventually(lambda: "one" in compute.fleet.serial_output(vm, 0)[0])
    at = compute.fleet.serial_output(vm, 0)[1]
    eventually(lambda: compute.fleet.serial_output(vm, at)[0] == "two\n")
    gone(compute.fleet, vm)
    assert compute.fleet.serial_output(vm, at) == ("", at)


def test_vm_with_our_label_but_a_foreign_name_is_not_listed(compute: EmulatorWorld, job: Job) -> None:
    compute.emulator.run("somebody-elses", labels={"trainmaster-job": job_label(job.job_id)})
    assert compute.fleet.list_vms(job.job_id) == ()
    assert compute.fleet.list_all() == ()


def test_rate_limit_and_no_connection_are_temporary_and_wrong_project_permanent(
    compute: EmulatorWorld, job: Job
) -> None:
    compute.emulator.faults(rate_limited=1)
    with pytest.raises(TemporaryError, match="rateLimitExceeded"):
        compute.fleet.list_vms(job.job_id)
    with pytest.raises(TemporaryError):
        a_fleet(compute.emulator, endpoint="http://127.0.0.1:9").list_vms(job.job_id)
    with pytest.raises(PermanentError, match="projects/other"):
        a_fleet(compute.emulator, project="other").list_vms(job.job_id)


def test_addresses_are_known_before_the_vm_exists(emulator: Emulator) -> None:
    assert DnsAddresses("p").address("vm", ZONE) == f"vm.{ZONE}.c.p.internal:2222"
    assert DnsAddresses("example.com:p").address("vm", ZONE) == f"vm.{ZONE}.c.p.example.com.internal:2222"
    book = EmulatorAddresses(emulator.endpoint)
    assert (
        book.address("vm", ZONE)
        == book.address("vm", OTHER_ZONE)
        == EmulatorAddresses(emulator.endpoint).address("vm", ZONE)
    )
    with pytest.raises(TemporaryError):
        EmulatorAddresses("http://127.0.0.1:9").address("vm", ZONE)
