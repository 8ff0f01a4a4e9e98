"""Group placement policies, through the real client.

The VMs of a job that use one policy are close to each other in their zone.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from tests.integration.compute.emulator import OTHER_ZONE, PROJECT, ZONE, Emulator, an_instance

REGION = "us-central1"


@pytest.fixture
def policies(emulator: Emulator) -> compute_v1.ResourcePoliciesClient:
    options = ClientOptions(api_endpoint=emulator.endpoint)
    return compute_v1.ResourcePoliciesClient(
        credentials=AnonymousCredentials(), client_options=options
    )


@pytest.fixture
def policy(policies: compute_v1.ResourcePoliciesClient) -> str:
    return create_policy(policies, f"compact-{uuid.uuid4().hex[:6]}")


def create_policy(policies: compute_v1.ResourcePoliciesClient, name: str, **changes: Any) -> str:
    placement = {"collocation": "COLLOCATED", **changes}
    resource = compute_v1.ResourcePolicy({"name": name, "group_placement_policy": placement})
    operation = policies.insert_unary(
        project=PROJECT, region=REGION, resource_policy_resource=resource
    )
    assert (operation.status, operation.region.rpartition("/")[2]) == (
        compute_v1.Operation.Status.DONE,
        REGION,
    )
    return name


def create_vm(
    emulator: Emulator, policy: str, zone: str = ZONE, **changes: Any
) -> compute_v1.Operation:
    """Create a VM that uses the policy, `vm-a` in zone a and `vm-b` in zone b."""
    resource = an_instance(
        f"vm-{zone[-1]}", script="", **{"machine_type": "a2-highgpu-1g", **changes}
    )
    resource.resource_policies = [policy]
    operation = emulator.instances.insert_unary(
        project=PROJECT, zone=zone, instance_resource=resource
    )
    return emulator.done(operation, zone)


def test_policy_is_shown_and_deleted(
    policies: compute_v1.ResourcePoliciesClient, policy: str
) -> None:
    resource = policies.get(project=PROJECT, region=REGION, resource_policy=policy)
    assert resource.group_placement_policy.collocation == "COLLOCATED"
    assert policy in {resource.name for resource in policies.list(project=PROJECT, region=REGION)}
    policies.delete_unary(project=PROJECT, region=REGION, resource_policy=policy)
    with pytest.raises(exceptions.NotFound, match=f"resourcePolicies/{policy}"):
        policies.get(project=PROJECT, region=REGION, resource_policy=policy)
    with pytest.raises(exceptions.NotFound):
        policies.delete_unary(project=PROJECT, region=REGION, resource_policy=policy)


def test_operation_of_a_policy_belongs_to_the_region(
    emulator: Emulator, policies: compute_v1.ResourcePoliciesClient, policy: str
) -> None:
    operation = policies.delete_unary(project=PROJECT, region=REGION, resource_policy=policy)
    options = ClientOptions(api_endpoint=emulator.endpoint)
    operations = compute_v1.RegionOperationsClient(
        credentials=AnonymousCredentials(), client_options=options
    )
    assert (
        operations.wait(project=PROJECT, region=REGION, operation=operation.name).operation_type
        == "delete"
    )
    assert operation.name in {
        listed.name for listed in operations.list(project=PROJECT, region=REGION)
    }
    with pytest.raises(exceptions.NotFound):
        emulator.operations.get(project=PROJECT, zone=ZONE, operation=operation.name)


def test_duplicate_policy_name_is_refused(
    policies: compute_v1.ResourcePoliciesClient, policy: str
) -> None:
    with pytest.raises(exceptions.Conflict, match="already exists"):
        create_policy(policies, policy)


def test_policy_in_use_cannot_be_deleted(
    emulator: Emulator, policies: compute_v1.ResourcePoliciesClient, policy: str
) -> None:
    create_vm(emulator, policy)
    assert (
        emulator.get("vm-a")
        .resource_policies[0]
        .endswith(f"regions/{REGION}/resourcePolicies/{policy}")
    )
    with pytest.raises(exceptions.BadRequest) as error:
        policies.delete_unary(project=PROJECT, region=REGION, resource_policy=policy)
    assert error.value.errors[0]["reason"] == "resourceInUseByAnotherResource"
    emulator.delete_all()
    policies.delete_unary(project=PROJECT, region=REGION, resource_policy=policy)


def test_vms_of_one_policy_must_be_in_one_zone(emulator: Emulator, policy: str) -> None:
    create_vm(emulator, policy)
    with pytest.raises(exceptions.BadRequest, match=f"used in zone {ZONE}"):
        create_vm(emulator, policy, OTHER_ZONE)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"machine_type": "n1-standard-4"}, "not supported for machine type n1"),
        ({}, "resourcePolicies/missing"),
    ],
    ids=["unsupported series", "missing policy"],
)
def test_vm_that_cannot_use_the_policy_is_refused(
    emulator: Emulator, policy: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(exceptions.ClientError, match=problem):
        create_vm(emulator, policy if changes else "missing", **changes)
