"""The permissions that calls of Compute Engine need. infra/ grants them to the account of
`provision` only.

Source of the permissions: Compute Engine's REST reference, "IAM permissions" of each method. The
condition of the grant names the training VMs: a call that names another VM is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trainmaster.core.model.installation import name_in_installation
from trainmaster_emulators.realism.call_access import Access

PROVISION: Final = "provision"
"""The only account with grants on Compute Engine."""
ROLES_FILE: Final = "iam.tf"
ACT_AS: Final = "iam.serviceAccounts.actAs"

_CONDITION: Final = "extract('/instances/{name}').startsWith('${local.vms}')"
_INSTANCE: Final = re.compile(
    r".*/zones/(?P<zone>[^/]+)/instances/(?P<name>(?!bulkInsert)[^/]+)(?:/\w+)?"
)
"""Path of a call about one VM: …/zones/ZONE/instances/NAME[/VERB]."""
_PATH: Final = re.compile(
    r"/compute/v1/(projects/[^/]+)/(?:(?:zones|regions)/[^/]+/|(?=aggregated/|global/))(.+)"
)
"""Path of any call. The groups: the project; the rest below the zone or region, or, for a call
without one, the rest from `aggregated/` or `global/` on.
"""
_OWN_ACCOUNT: Final = re.compile(r"trainmaster-(\w+)@.+")
_CALLS: Final = {
    ("GET", r"aggregated/instances"): "compute.instances.list",
    ("GET", r"instances"): "compute.instances.list",
    ("GET", r"instances/[^/]+"): "compute.instances.get",
    ("DELETE", r"instances/[^/]+"): "compute.instances.delete",
    ("POST", r"instances/[^/]+/setMetadata"): "compute.instances.setMetadata",
    ("POST", r"instances/[^/]+/setLabels"): "compute.instances.setLabels",
    ("GET", r"instances/[^/]+/serialPort"): "compute.instances.getSerialPortOutput",
    ("GET", r"instances/[^/]+/getGuestAttributes"): "compute.instances.getGuestAttributes",
    ("POST", r"advice/capacity"): "compute.advice.capacity",
    ("POST", r"resourcePolicies"): "compute.resourcePolicies.create",
    ("GET", r"resourcePolicies/[^/]+"): "compute.resourcePolicies.get",
    ("DELETE", r"resourcePolicies/[^/]+"): "compute.resourcePolicies.delete",
}
"""Method and path below the project, zone or region → permission on the project.

Inserts and operations are below.
"""
_OPERATION: Final = re.compile(r"/(zones|regions)/[^/]+/operations(/[^/]+)?(/wait)?$")
"""End of the path of a call about operations. The groups: zones or regions; the operation, unless
the call lists all; the verb.
"""
_FIELDS: Final = {
    "labels": "compute.instances.setLabels",
    "metadata": "compute.instances.setMetadata",
    "serviceAccounts": "compute.instances.setServiceAccount",
    "tags": "compute.instances.setTags",
    "resourcePolicies": "compute.resourcePolicies.use",
}
"""Argument of an insert → permission."""


def required_access(method: str, path: str, body: Mapping[str, Any]) -> Iterator[Access]:
    """Yield the permissions of a call. Raises KeyError for a call that is not in this module."""
    operation = _OPERATION.search(path)
    if operation:
        kind = "zoneOperations" if operation[1] == "zones" else "regionOperations"
        verb = "get" if operation[2] else "list"
        yield Access(f"compute.{kind}.{verb}", "project")
        return
    match = _PATH.fullmatch(path)
    project, name = match.groups() if match else ("", "")
    if method == "POST" and name in ("instances", "instances/bulkInsert"):
        properties = body.get("instanceProperties", {}) if name.endswith("bulkInsert") else body
        for permission in _insert_permissions(project, properties):
            yield Access(permission, "project")
        for account in properties.get("serviceAccounts", []):
            yield act_as(str(account.get("email", "default")))
        return
    for (call_method, pattern), permission in _CALLS.items():
        if call_method == method and re.fullmatch(pattern, name):
            yield Access(permission, "project")
            return
    raise KeyError(f"{method} {path}")


def act_as(email: str) -> Access:
    """Return the permission to run a VM as a service account."""
    match = _OWN_ACCOUNT.fullmatch(email)
    account = match[1] if match else email
    return Access(ACT_AS, f"account {account}")


def vm_prefix(infra: Path) -> str:
    """Return the prefix of VM names that the condition of the grant requires; empty if there is no
    such condition.
    """
    return (
        name_in_installation("tm-")
        if _CONDITION in (infra / ROLES_FILE).read_text(encoding="utf-8")
        else ""
    )


def refused_vm(
    prefix: str, path: str, body: Mapping[str, Any], name_of: Callable[[str, str], str]
) -> str:
    """Return the error message if the call names a VM without the prefix; empty if it does not.

    `name_of`: (zone, name or id) → name. Google does not document whether the condition applies to
    the VM names of a bulk insert; here it does.
    """
    is_about_vms = "/instances" in path
    if not is_about_vms:
        return ""
    names: list[str] = []
    match = _INSTANCE.fullmatch(path)
    if match:
        names.append(name_of(match["zone"], match["name"]))
    elif "name" in body:
        names.append(str(body["name"]))
    for name, properties in body.get("perInstanceProperties", {}).items():
        names.append(properties.get("name") or name)
    outside = next((name for name in names if not name.startswith(prefix)), "")
    if not outside:
        return ""
    return f"the condition of {PROVISION}'s role permits VMs named {prefix}* only, not {outside}"


def _insert_permissions(project: str, properties: Mapping[str, Any]) -> Iterator[str]:
    """Yield the permissions that an insert needs in its project.

    An image of another project needs none here.
    """
    yield "compute.instances.create"
    parameters = [
        disk["initializeParams"]
        for disk in properties.get("disks", [])
        if "initializeParams" in disk
    ]
    if parameters:
        yield "compute.disks.create"
    if any(f"{project}/" in str(disk.get("sourceImage")) for disk in parameters):
        yield "compute.images.useReadOnly"
    if any(disk.get("labels") for disk in parameters):
        yield "compute.disks.setLabels"
    for interface in properties.get("networkInterfaces", []):
        yield "compute.subnetworks.use"
        if not interface.get("subnetwork"):
            yield "compute.networks.get"
        if interface.get("accessConfigs"):
            yield "compute.subnetworks.useExternalIp"
    reservation = properties.get("reservationAffinity", {})
    if reservation.get("consumeReservationType") == "SPECIFIC_RESERVATION":
        yield "compute.reservations.get"
        yield "compute.reservations.list"
    for field, permission in _FIELDS.items():
        if properties.get(field):
            yield permission
