"""The local IAM of Compute Engine has the grants of infra/ to `provision`, and knows the calls of
the fleet.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.infra import iam_table
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.realism.call_access import INFRA, Access
from trainmaster_emulators.realism.compute_access import (
    ACT_AS,
    PROVISION,
    refused_vm,
    required_access,
    vm_prefix,
)
from trainmaster_emulators.realism.http_access import grants_of

ZONE = "/compute/v1/projects/p/zones/us-central1-a"
REGION = "/compute/v1/projects/p/regions/us-central1"
WORKER = {"email": "trainmaster-worker@p.iam.gserviceaccount.com"}


def custom_roles_of_provision() -> set[str]:
    """Return the permissions of the roles that only `provision` has."""
    permissions = set[str]()
    for entry in iam_table.load(INFRA / "iam.tf")["resource"]:
        for kind, resources in entry.items():
            if kind.strip('"') == "google_project_iam_custom_role":
                for name, body in resources.items():
                    if name.strip('"') in ("provisioner", "capacity_adviser"):
                        permissions.update(iam_table.strings(body["permissions"]))
    return permissions


def test_grants_are_those_of_infra() -> None:
    expected = {Access(permission, "project") for permission in custom_roles_of_provision()}
    grants = {
        access for access in grants_of(PROVISION, INFRA) if access.permission.startswith("compute.")
    }
    assert grants == {access for access in expected if access.permission.startswith("compute.")}
    assert expected | {Access(ACT_AS, "account worker")} <= grants_of(PROVISION, INFRA)


def test_only_provision_has_the_role() -> None:
    members = {
        grant.member
        for grant in iam_table.grants()
        if grant.role.startswith("trainmasterProvisioner")
    }
    assert members == {"function provision"}


def test_call_needs_a_permission_that_provision_has() -> None:
    granted = grants_of(PROVISION, INFRA)
    for method, path, permission in (
        ("GET", "/compute/v1/projects/p/aggregated/instances", "compute.instances.list"),
        ("GET", f"{ZONE}/instances/123", "compute.instances.get"),
        ("DELETE", f"{ZONE}/instances/123", "compute.instances.delete"),
        ("POST", f"{ZONE}/instances/123/setMetadata", "compute.instances.setMetadata"),
        ("POST", f"{ZONE}/instances/123/setLabels", "compute.instances.setLabels"),
        ("GET", f"{ZONE}/instances/123/serialPort", "compute.instances.getSerialPortOutput"),
        ("GET", f"{ZONE}/instances/123/getGuestAttributes", "compute.instances.getGuestAttributes"),
        ("GET", f"{ZONE}/operations", "compute.zoneOperations.list"),
        ("POST", f"{ZONE}/operations/o/wait", "compute.zoneOperations.get"),
        ("POST", f"{REGION}/operations/o/wait", "compute.regionOperations.get"),
        ("POST", f"{REGION}/advice/capacity", "compute.advice.capacity"),
        ("POST", f"{REGION}/resourcePolicies", "compute.resourcePolicies.create"),
        ("DELETE", f"{REGION}/resourcePolicies/tm-p", "compute.resourcePolicies.delete"),
    ):
        needed = Access(permission, "project")
        assert list(required_access(method, path, {})) == [needed]
        assert needed in granted


@pytest.mark.parametrize(
    ("argument", "permission"),
    [
        ({"labels": {"a": "b"}}, "compute.instances.setLabels"),
        ({"metadata": {"items": []}}, "compute.instances.setMetadata"),
        ({"tags": {"items": ["a"]}}, "compute.instances.setTags"),
        ({"resourcePolicies": ["p"]}, "compute.resourcePolicies.use"),
        (
            {"disks": [{"initializeParams": {"sourceImage": "projects/p/global/images/i"}}]},
            "compute.disks.create",
        ),
        (
            {"disks": [{"initializeParams": {"sourceImage": "projects/p/global/images/i"}}]},
            "compute.images.useReadOnly",
        ),
        ({"networkInterfaces": [{"subnetwork": "s"}]}, "compute.subnetworks.use"),
        ({"networkInterfaces": [{"network": "n"}]}, "compute.networks.get"),
        ({"networkInterfaces": [{"accessConfigs": [{}]}]}, "compute.subnetworks.useExternalIp"),
        (
            {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}},
            "compute.reservations.get",
        ),
        ({"serviceAccounts": [WORKER]}, "compute.instances.setServiceAccount"),
    ],
)
def test_insert_needs_the_permissions_of_its_arguments(
    argument: dict[str, Any], permission: str
) -> None:
    def permissions(properties: dict[str, Any]) -> set[str]:
        body = {"instanceProperties": properties}
        return {
            access.permission
            for access in required_access("POST", f"{ZONE}/instances/bulkInsert", body)
        }

    assert permissions({}) == {"compute.instances.create"}
    assert permission in permissions(argument)


@pytest.mark.parametrize(
    ("email", "is_refused"), [(WORKER["email"], False), ("other@p.iam.gserviceaccount.com", True)]
)
def test_provision_may_act_as_the_worker_account_only(email: str, is_refused: bool) -> None:
    body = {"instanceProperties": {"serviceAccounts": [{"email": email}]}}
    (needed,) = (
        access
        for access in required_access("POST", f"{ZONE}/instances/bulkInsert", body)
        if access.permission == ACT_AS
    )
    assert (needed not in grants_of(PROVISION, INFRA)) == is_refused


def test_condition_of_infra_names_the_vms_of_jobs() -> None:
    prefix = vm_prefix(INFRA)
    assert prefix
    assert vm_name("j", ReplicaId(TaskType.WORKER, 0)).startswith(prefix)


@pytest.mark.parametrize(
    ("path", "body", "outside"),
    [
        (f"{ZONE}/instances/tm-1", {}, ""),
        (f"{ZONE}/instances/database", {}, "database"),
        (f"{ZONE}/instances/17", {}, "other"),
        (f"{ZONE}/instances/database/setMetadata", {}, "database"),
        (f"{ZONE}/instances", {"name": "database"}, "database"),
        (f"{ZONE}/instances/bulkInsert", {"perInstanceProperties": {"tm-1": {}}}, ""),
        (
            f"{ZONE}/instances/bulkInsert",
            {"perInstanceProperties": {"tm-1": {}, "database": {}}},
            "database",
        ),
        ("/compute/v1/projects/p/aggregated/instances", {}, ""),
        (f"{REGION}/resourcePolicies", {"name": "placement"}, ""),
    ],
)
def test_call_that_names_a_vm_outside_the_condition_is_refused(
    path: str, body: dict[str, Any], outside: str
) -> None:
    message = refused_vm("tm-", path, body, lambda _, name: "other" if name == "17" else name)
    expected = f"the condition of provision's role permits VMs named tm-* only, not {outside}"
    assert message == (expected if outside else "")
