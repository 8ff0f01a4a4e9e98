"""The Compute API through google-cloud-compute: resources, lists, fingerprints,
operations, errors.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from tests.integration.compute.emulator import (
    IMAGE,
    OTHER_ZONE,
    PROJECT,
    ZONE,
    Emulator,
    an_instance,
)
from tests.support.stack import eventually
from trainmaster_emulators.compute.list_filter import parse_filter
from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.machines.properties import (
    DEEP_LEARNING_GB,
    LABELS_MAX,
    METADATA_VALUE_BYTES_MAX,
)
from trainmaster_emulators.machines.scheduling import RUN_DURATION_S_MAX


def bulk(names: list[str], **changes: Any) -> compute_v1.BulkInsertInstanceResource:
    """Return the body of a request for VMs of these names. `changes`: other fields of it."""
    instance = an_instance("unused", "sleep 600", machine_type="n1-standard-4")
    properties = compute_v1.InstanceProperties(
        machine_type=instance.machine_type,
        disks=instance.disks,
        metadata=instance.metadata,
        labels={"job": "j"},
    )
    return compute_v1.BulkInsertInstanceResource(
        {
            "count": len(names),
            "per_instance_properties": {name: {} for name in names},
            "instance_properties": properties,
            **changes,
        }
    )


def bulk_insert(
    emulator: Emulator, names: list[str], zone: str = ZONE, **changes: Any
) -> compute_v1.Operation:
    request_id = changes.pop("request_id", "")
    request = compute_v1.BulkInsertInstanceRequest(
        project=PROJECT,
        zone=zone,
        request_id=request_id,
        bulk_insert_instance_resource_resource=bulk(names, **changes),
    )
    return emulator.instances.bulk_insert_unary(request)


def reason(error: pytest.ExceptionInfo[exceptions.GoogleAPICallError]) -> str:
    return str(error.value.errors[0]["reason"])


def test_inserted_vm_has_the_requested_properties(emulator: Emulator) -> None:
    vm = emulator.run("vm", labels={"job": "j"}, metadata={"key": "value"})
    assert (vm.status, vm.zone.rpartition("/")[2], dict(vm.labels)) == (
        "RUNNING",
        ZONE,
        {"job": "j"},
    )
    assert vm.machine_type.endswith(f"/zones/{ZONE}/machineTypes/n1-standard-4")
    assert {item.key: item.value for item in vm.metadata.items}["key"] == "value"
    assert vm.service_accounts[0].email.endswith("-compute@developer.gserviceaccount.com")
    assert emulator.get(str(vm.id)) == vm


def test_bulk_insert_creates_all_vms_in_one_operation_group(emulator: Emulator) -> None:
    finished = emulator.done(bulk_insert(emulator, ["a", "b", "c"]))
    assert finished.operation_type == "bulkInsert"
    assert emulator.names() == {"a", "b", "c"}
    request = compute_v1.ListZoneOperationsRequest(
        project=PROJECT,
        zone=ZONE,
        filter=f'operationGroupId="{finished.operation_group_id}" AND operationType=insert',
    )
    assert len(list(emulator.operations.list(request))) == 3


@pytest.mark.parametrize(
    ("min_count", "codes", "other_status"),
    [
        (1, [], "RUNNING"),
        (2, ["UNSUPPORTED_OPERATION", "VM_MIN_COUNT_NOT_REACHED"], "DELETED"),
    ],
)
def test_bulk_insert_keeps_the_vms_that_are_not_preempted_if_they_are_enough(
    emulator: Emulator, min_count: int, codes: list[str], other_status: str
) -> None:
    emulator.faults(slow_s=0.5)
    operation = bulk_insert(emulator, ["a", "b"], min_count=min_count)
    emulator.fault("a", "preempt")
    assert [error.code for error in emulator.done(operation).error.errors] == codes
    assert (emulator.status("a"), emulator.status("b")) == ("TERMINATED", other_status)


def test_name_pattern_is_refused(emulator: Emulator) -> None:
    resource = bulk(["x", "y"], per_instance_properties={}, name_pattern="vm-##")
    with pytest.raises(exceptions.BadRequest, match="namePattern"):
        emulator.instances.bulk_insert_unary(
            project=PROJECT, zone=ZONE, bulk_insert_instance_resource_resource=resource
        )


def test_repeated_request_id_returns_the_same_operation(emulator: Emulator) -> None:
    request_id = str(uuid.uuid4())
    first = bulk_insert(emulator, ["a"], request_id=request_id)
    assert bulk_insert(emulator, ["a"], request_id=request_id).name == first.name
    emulator.done(first)
    again = bulk_insert(emulator, ["a"], request_id=request_id)
    assert (again.name, again.client_operation_id) == (first.name, request_id)
    request = compute_v1.ListZoneOperationsRequest(
        project=PROJECT, zone=ZONE, filter=f'clientOperationId="{request_id}"'
    )
    assert [operation.name for operation in emulator.operations.list(request)] == [first.name]


def test_name_of_a_stopping_vm_makes_the_whole_bulk_insert_fail(emulator: Emulator) -> None:
    emulator.run("b", "trap 'sleep 1; exit' TERM; echo ready; while :; do sleep 0.1; done")
    eventually(lambda: "ready" in emulator.serial("b"))
    emulator.instances.delete_unary(project=PROJECT, zone=ZONE, instance="b")
    eventually(lambda: emulator.status("b") == "STOPPING")
    with pytest.raises(exceptions.Conflict) as error:
        bulk_insert(emulator, ["a", "b"])
    assert reason(error) == "alreadyExists"
    assert emulator.names() == {"b"}
    # A name is unique in its zone only.
    emulator.done(bulk_insert(emulator, ["a", "b"], zone=OTHER_ZONE), OTHER_ZONE)


def test_stockout_fails_the_operation_with_available_zones_and_leaves_no_vm(
    emulator: Emulator,
) -> None:
    emulator.faults(stockout_zones=[ZONE])
    finished = emulator.done(bulk_insert(emulator, ["a", "b"]))
    codes = [error.code for error in finished.error.errors]
    assert codes == ["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "VM_MIN_COUNT_NOT_REACHED"]
    details = finished.error.errors[0].error_details
    available = [
        detail.error_info.metadatas.get("zonesAvailable")
        for detail in details
        if detail.error_info.reason
    ]
    assert available == ["us-central1-b,us-central1-c,us-central1-f"]
    assert finished.http_error_status_code == 503
    assert emulator.names() == set()


def test_zone_with_capacity_for_some_vms_creates_those_if_the_minimum_allows_it(
    emulator: Emulator,
) -> None:
    emulator.faults(machine_limits={"n1-standard-4": 2})
    all_or_nothing = emulator.done(bulk_insert(emulator, ["a", "b", "c"]))
    assert all_or_nothing.http_error_status_code == 503
    assert emulator.names() == set()
    assert not emulator.done(bulk_insert(emulator, ["a", "b", "c"], min_count=1)).error.errors
    assert len(emulator.names()) == 2
    (missing,) = {"a", "b", "c"} - emulator.names()
    assert (
        emulator.done(bulk_insert(emulator, [missing], min_count=1)).http_error_status_code == 503
    )
    emulator.faults()
    assert not emulator.done(bulk_insert(emulator, [missing])).error.errors


def test_exhausted_quota_fails_the_operation(emulator: Emulator) -> None:
    emulator.faults(quota_regions=["us-central1"])
    finished = emulator.done(bulk_insert(emulator, ["a"]))
    assert finished.error.errors[0].code == "QUOTA_EXCEEDED"
    assert (
        finished.error.errors[0].error_details[0].quota_info.dimensions["region"] == "us-central1"
    )


def test_rate_limit_fault_affects_that_many_calls(emulator: Emulator) -> None:
    emulator.faults(rate_limited=1)
    with pytest.raises(exceptions.Forbidden) as error:
        emulator.get("vm")
    assert reason(error) == "rateLimitExceeded"
    with pytest.raises(exceptions.NotFound):
        emulator.get("vm")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "Vm"}, "resource.name"),
        ({"machine_type": "n9-standard-4"}, "resource.machineType"),
        ({"labels": {"Job": "x"}}, "resource.labels"),
        (
            {"scheduling": {"max_run_duration": {"seconds": RUN_DURATION_S_MAX + 1}}},
            "resource.scheduling.maxRunDuration",
        ),
        ({"metadata": {"big": "x" * (METADATA_VALUE_BYTES_MAX + 1)}}, "metadata.items.big"),
        ({"guest_accelerators": [{"accelerator_type": "nvidia-abacus"}]}, "guestAccelerators"),
    ],
)
def test_invalid_field_fails_the_call(
    emulator: Emulator, changes: dict[str, Any], field: str
) -> None:
    resource = an_instance(changes.pop("name", "vm"), script="", **changes)
    with pytest.raises(exceptions.BadRequest, match=field):
        emulator.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=resource)


SPOT: dict[str, Any] = {
    "provisioning_model": "SPOT",
    "automatic_restart": False,
    "on_host_maintenance": "TERMINATE",
}
T4 = {"accelerator_type": "nvidia-tesla-t4", "accelerator_count": 1}
RESERVED: dict[str, Any] = {"consume_reservation_type": "SPECIFIC_RESERVATION"}
RESERVATION_KEY = "compute.googleapis.com/reservation-name"


def a_disk(**changes: Any) -> dict[str, Any]:
    """Return a boot disk with this project's image. `changes`: other `initialize_params`."""
    return {"boot": True, "initialize_params": {"source_image": IMAGE, **changes}}


DEEP_LEARNING = (
    "projects/deeplearning-platform-release/global/images/family/"
    "common-cu129-ubuntu-2404-nvidia-580"
)
HYPERDISK = a_disk(disk_type="hyperdisk-balanced")
RESERVATION: dict[str, Any] = {**RESERVED, "key": RESERVATION_KEY, "values": ["r"]}
BOUND: dict[str, Any] = {  # to a reservation
    "provisioning_model": "RESERVATION_BOUND",
    "on_host_maintenance": "TERMINATE",
    "automatic_restart": False,
    "instance_termination_action": "DELETE",
}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"guest_accelerators": [T4], "scheduling": {}}, "live migration"),
        ({"machine_type": "g2-standard-4", "scheduling": {}}, "live migration"),
        ({"machine_type": "g2-standard-4", "guest_accelerators": [T4]}, "not compatible"),
        ({"machine_type": "c3-standard-4", "guest_accelerators": [T4]}, "not compatible"),
        ({"machine_type": "e2-standard-4"}, "can only live migrate"),
        ({"scheduling": {**SPOT, "on_host_maintenance": "MIGRATE"}}, "preemptible"),
        ({"scheduling": {**SPOT, "automatic_restart": True}}, "preemptible"),
        ({"scheduling": {**SPOT, "provisioning_model": "CHEAP"}}, "provisioningModel"),
        (
            {"scheduling": {**SPOT, "preemption_notice_duration": {"seconds": 60}}},
            "preemptionNoticeDuration",
        ),
        (
            {"scheduling": {"preemption_notice_duration": {"seconds": 120}}},
            "preemptionNoticeDuration",
        ),
        (
            {"machine_type": "c3-standard-4", "disks": [a_disk(disk_type="pd-standard")]},
            "not compatible",
        ),
        (
            {"machine_type": "n4-standard-4", "disks": [a_disk(disk_type="pd-ssd")]},
            "not compatible",
        ),
        ({"disks": [a_disk(disk_type="hyperdisk-balanced")]}, "not compatible"),
        ({"disks": [a_disk(disk_size_gb=5)]}, "smaller than the image"),
        (
            {"disks": [{**a_disk(), "disk_encryption_key": {"kms_key_name": "my-key"}}]},
            "kmsKeyName",
        ),
        (
            {"reservation_affinity": {**RESERVED, "key": "mine", "values": ["r"]}},
            "reservationAffinity",
        ),
        ({"reservation_affinity": {**RESERVED, "key": RESERVATION_KEY}}, "reservationAffinity"),
        (
            {
                "reservation_affinity": {**RESERVED, "key": RESERVATION_KEY, "values": ["r"]},
                "scheduling": SPOT,
            },
            "Spot VMs",
        ),
        (
            {"disks": [a_disk(source_image=DEEP_LEARNING, disk_size_gb=DEEP_LEARNING_GB - 1)]},
            "smaller than the image",
        ),
        ({"machine_type": "a3-highgpu-1g"}, "provisioningModel"),
        ({"machine_type": "a4-highgpu-8g", "disks": [HYPERDISK]}, "provisioningModel"),
        (
            {"machine_type": "a4-highgpu-8g", "disks": [HYPERDISK], "scheduling": BOUND},
            "reservationAffinity",
        ),
        ({"labels": {f"l{number}": "x" for number in range(LABELS_MAX + 1)}}, "resource.labels"),
    ],
)
def test_incompatible_fields_fail_the_call(
    emulator: Emulator, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(exceptions.BadRequest, match=problem):
        emulator.instances.insert_unary(
            project=PROJECT, zone=ZONE, instance_resource=an_instance("vm", script="", **changes)
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"machine_type": "e2-standard-4", "scheduling": SPOT},
        {"machine_type": "e2-standard-4", "scheduling": {}},
        {"machine_type": "c4-standard-4", "disks": [a_disk(disk_type="hyperdisk-balanced")]},
        {"reservation_affinity": {**RESERVED, "key": RESERVATION_KEY, "values": ["r"]}},
        {
            "machine_type": "a4-highgpu-8g",
            "disks": [HYPERDISK],
            "scheduling": BOUND,
            "reservation_affinity": RESERVATION,
        },
        {"machine_type": "a3-highgpu-1g", "scheduling": SPOT},
        {"disks": [a_disk(source_image=DEEP_LEARNING, disk_size_gb=DEEP_LEARNING_GB)]},
        {
            "scheduling": {
                **SPOT,
                "preemption_notice_duration": {"seconds": 120},
                "max_run_duration": {"seconds": 60},
                "instance_termination_action": "DELETE",
            }
        },
    ],
)
def test_compatible_fields_are_accepted(emulator: Emulator, changes: dict[str, Any]) -> None:
    assert emulator.run("vm", **changes).status == "RUNNING"


def test_built_in_gpus_of_the_machine_type_are_shown(emulator: Emulator) -> None:
    vm = emulator.run("vm", machine_type="a2-highgpu-2g")
    (gpus,) = vm.guest_accelerators
    assert (gpus.accelerator_type.rpartition("/")[2], gpus.accelerator_count) == (
        "nvidia-tesla-a100",
        2,
    )


def test_metadata_and_labels_change_only_with_the_current_fingerprint(emulator: Emulator) -> None:
    vm = emulator.run("vm", "sleep 600", labels={"a": "1"})
    new = compute_v1.Metadata(
        {"fingerprint": vm.metadata.fingerprint, "items": [{"key": "k", "value": "v"}]}
    )
    emulator.done(
        emulator.instances.set_metadata_unary(
            project=PROJECT, zone=ZONE, instance="vm", metadata_resource=new
        )
    )
    with pytest.raises(exceptions.PreconditionFailed) as error:
        emulator.instances.set_metadata_unary(
            project=PROJECT, zone=ZONE, instance="vm", metadata_resource=new
        )
    assert reason(error) == "conditionNotMet"
    labels = compute_v1.InstancesSetLabelsRequest(
        label_fingerprint=vm.label_fingerprint, labels={"a": "2"}
    )

    def set_labels() -> None:
        emulator.instances.set_labels_unary(
            project=PROJECT,
            zone=ZONE,
            instance="vm",
            instances_set_labels_request_resource=labels,
        )

    set_labels()
    with pytest.raises(exceptions.PreconditionFailed):
        set_labels()
    changed = emulator.get("vm")
    assert [(item.key, item.value) for item in changed.metadata.items] == [("k", "v")]
    assert dict(changed.labels) == {"a": "2"}


def test_lists_are_filtered_and_paged(emulator: Emulator) -> None:
    emulator.done(bulk_insert(emulator, ["a", "b", "c"]))
    emulator.done(bulk_insert(emulator, ["d"], zone=OTHER_ZONE), OTHER_ZONE)
    request = compute_v1.ListInstancesRequest(
        project=PROJECT, zone=ZONE, max_results=2, filter="labels.job=j"
    )
    pager = emulator.instances.list(request)
    assert [[vm.name for vm in page.items] for page in pager.pages] == [["a", "b"], ["c"]]
    aggregated = compute_v1.AggregatedListInstancesRequest(
        project=PROJECT, max_results=1, filter='name ne "b"'
    )
    names = [
        vm.name
        for _, scope in emulator.instances.aggregated_list(aggregated)
        for vm in scope.instances
    ]
    assert names == ["a", "c", "d"]


def test_missing_vm_zone_and_project_are_not_found(emulator: Emulator) -> None:
    with pytest.raises(
        exceptions.NotFound, match=f"projects/{PROJECT}/zones/{ZONE}/instances/missing"
    ):
        emulator.get("missing")
    with pytest.raises(exceptions.NotFound, match="zones/mars-1-a"):
        emulator.get("missing", "mars-1-a")
    with pytest.raises(exceptions.NotFound, match="projects/other"):
        emulator.instances.get(project="other", zone=ZONE, instance="missing")


def test_unknown_image_without_a_default_environment_is_refused() -> None:
    from trainmaster_emulators.machines.catalog import Catalog, Links

    catalog = Catalog(Links("http://x/compute/v1", PROJECT), {"python": "/env"})
    assert catalog.environment_of(IMAGE) == "/env"
    with pytest.raises(ApiError, match="sourceImage"):
        catalog.environment_of("global/images/other")


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("labels.trainmaster-job=digits_1", True),
        ("labels.trainmaster-job = digits", False),
        ("labels.trainmaster-job:digits", True),
        ("labels.owner:*", False),
        ('name eq ".*\\bvm\\b.*"', True),
        ('name ne "vm-.*"', False),
        ("name eq vm", False),
        ("(status = RUNNING) AND (scheduling.preemptible = false)", True),
        ("(status = RUNNING) (name = other)", False),
        ("status = TERMINATED OR name = vm-1", True),
        ("NOT status = RUNNING", False),
        ("-status = RUNNING", False),
        ("disks.diskSizeGb > 50", True),
        ("disks.diskSizeGb > 100", False),
        ("status != RUNNING", False),
    ],
)
def test_filter_matches(text: str, *, matches: bool) -> None:
    resource = {
        "name": "vm-1",
        "status": "RUNNING",
        "labels": {"trainmaster-job": "digits_1"},
        "scheduling": {"preemptible": False},
        "disks": [{"diskSizeGb": "10"}, {"diskSizeGb": "100"}],
    }
    assert parse_filter(text)(resource) is matches


@pytest.mark.parametrize(
    "text", ["name", "name =", "(name = x", "name = x)", "= x", "name eq '('", "name == x"]
)
def test_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="filter"):
        parse_filter(text)
