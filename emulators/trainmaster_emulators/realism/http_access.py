"""The permissions that calls of Google's JSON APIs need, and those that infra/ grants to an
account.

Functions, consoles and VMs call these APIs: Pub/Sub (VMs only), Cloud Logging, Cloud Monitoring,
Cloud TPU, IAM, Secret Manager, Artifact Registry, and Compute Engine, which only `provision` may
call. Sources of the permissions: the REST reference of each API, "IAM permissions" of each method.
`storage_access` has those of Cloud Storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from trainmaster_emulators.realism import compute_access
from trainmaster_emulators.realism.call_access import (
    PUBLISH,
    TABLE_FILE,
    Access,
    custom_roles,
    granted_access,
    topic_resource,
)

ACCESS_SECRET: Final = "secretmanager.versions.access"  # noqa: S105 - a permission's name
SECRET_ACCESSOR: Final = "roles/secretmanager.secretAccessor"  # noqa: S105 - a role's name
ALL_OF_TPU: Final = "tpu.*"
ROLES: Final = {
    "roles/pubsub.publisher": frozenset({PUBLISH}),
    "roles/logging.logWriter": frozenset({"logging.logEntries.create"}),
    "roles/logging.viewer": frozenset({"logging.logEntries.list"}),
    "roles/monitoring.metricWriter": frozenset(
        {"monitoring.timeSeries.create", "monitoring.metricDescriptors.list"}
    ),
    "roles/monitoring.viewer": frozenset(
        {"monitoring.timeSeries.list", "monitoring.metricDescriptors.list"}
    ),
    "roles/tpu.admin": frozenset({ALL_OF_TPU}),
    "roles/iam.serviceAccountUser": frozenset({compute_access.ACT_AS}),
}
"""Predefined role → its permissions, as far as these calls need them.

Source: "Predefined roles" of each service.
"""


class Api(StrEnum):
    """The emulator that serves a call."""

    PUBSUB = "pubsub"
    LOGGING = "logging"
    MONITORING = "monitoring"
    COMPUTE = "compute"
    """Compute Engine and Cloud TPU."""
    IAM = "iam"
    """IAM, Secret Manager and Artifact Registry."""
    STORAGE = "storage"


_PROJECT: Final = r"/v1/projects/[^/]+"
_LOCATION: Final = r"/v2(?:alpha1)?/projects/[^/]+/locations"
_CALLS: Final = (
    ("POST", r"/v2/entries:write", Api.LOGGING, "logging.logEntries.create"),
    ("POST", r"/v2/entries:list", Api.LOGGING, "logging.logEntries.list"),
    ("POST", r"/v3/projects/[^/]+/timeSeries", Api.MONITORING, "monitoring.timeSeries.create"),
    ("GET", r"/v3/projects/[^/]+/timeSeries", Api.MONITORING, "monitoring.timeSeries.list"),
    (
        "GET",
        r"/v3/projects/[^/]+/metricDescriptors",
        Api.MONITORING,
        "monitoring.metricDescriptors.list",
    ),
    ("GET", rf"{_PROJECT}/serviceAccounts/[^/:]+", Api.IAM, "iam.serviceAccounts.get"),
    ("GET", rf"{_PROJECT}/secrets/[^/]+/versions/[^/:]+", Api.IAM, "secretmanager.versions.get"),
    ("GET", rf"{_PROJECT}/locations/.+/tags/[^/]+", Api.IAM, "artifactregistry.tags.get"),
    ("GET", rf"{_PROJECT}/locations/.+/versions/[^/]+", Api.IAM, "artifactregistry.versions.get"),
    ("GET", rf"{_LOCATION}(?:/[^/]+)?", Api.COMPUTE, "tpu.locations.list"),
    ("GET", rf"{_LOCATION}/[^/]+/acceleratorTypes", Api.COMPUTE, "tpu.acceleratortypes.list"),
    ("GET", rf"{_LOCATION}/[^/]+/nodes", Api.COMPUTE, "tpu.nodes.list"),
    ("POST", rf"{_LOCATION}/[^/]+/nodes", Api.COMPUTE, "tpu.nodes.create"),
    ("GET", rf"{_LOCATION}/[^/]+/nodes/[^/:]+", Api.COMPUTE, "tpu.nodes.get"),
    ("PATCH", rf"{_LOCATION}/[^/]+/nodes/[^/:]+", Api.COMPUTE, "tpu.nodes.update"),
    ("DELETE", rf"{_LOCATION}/[^/]+/nodes/[^/:]+", Api.COMPUTE, "tpu.nodes.delete"),
    (
        "POST",
        rf"{_LOCATION}/[^/]+/nodes/[^/]+:getGuestAttributes",
        Api.COMPUTE,
        "tpu.nodes.getGuestAttributes",
    ),
    (
        "GET",
        rf"{_LOCATION}/[^/]+/queuedResources(?:/[^/:]+)?",
        Api.COMPUTE,
        "tpu.queuedResources.get",
    ),
    ("POST", rf"{_LOCATION}/[^/]+/queuedResources", Api.COMPUTE, "tpu.queuedResources.create"),
    (
        "DELETE",
        rf"{_LOCATION}/[^/]+/queuedResources/[^/:]+",
        Api.COMPUTE,
        "tpu.queuedResources.delete",
    ),
    ("GET", rf"{_LOCATION}/[^/]+/operations(?:/[^/]+)?", Api.COMPUTE, "tpu.operations.get"),
    ("DELETE", rf"{_LOCATION}/[^/]+/operations/[^/]+", Api.COMPUTE, "tpu.operations.delete"),
)
"""Method, path, API, permission on the project.

Names of permissions of queued resources are not documented; the role that infra/ grants has all
permissions of Cloud TPU.
"""
_PUBLISH: Final = re.compile(rf"{_PROJECT}/topics/(?P<topic>[^/:]+):publish")
_ACCESS_SECRET: Final = re.compile(rf"(?P<secret>{_PROJECT}/secrets/[^/]+)/versions/[^/:]+:access")
_TEST_PERMISSIONS: Final = re.compile(rf"{_PROJECT}(?:/serviceAccounts/[^/:]+)?:testIamPermissions")
"""Asks for the permissions of the caller whose token it contains. It needs no permission itself."""
_ADDRESS: Final = "/emulator/v1/address"
"""The Compute emulator's own call that takes the place of Compute Engine's DNS names."""


def grants_of(account: str, infra: Path) -> frozenset[Access]:
    """Return what infra/ grants to an account.

    Grants with a condition count only if the condition is on the names of VMs: what these calls are
    about always has such a name, so it is not compared.
    """
    table = (infra / TABLE_FILE).read_text(encoding="utf-8")
    roles = ROLES | custom_roles((infra / compute_access.ROLES_FILE).read_text(encoding="utf-8"))
    return granted_access(account, table, roles)


def required_access(method: str, path: str, body: Mapping[str, Any]) -> tuple[Api, list[Access]]:
    """Return the API of a call and the permissions that it needs.

    Raises KeyError for an unknown call.
    """
    published = _PUBLISH.fullmatch(path)
    if method == "POST" and published:
        return Api.PUBSUB, [Access(PUBLISH, topic_resource(published["topic"]))]
    accessed = _ACCESS_SECRET.fullmatch(path)
    if method == "GET" and accessed:
        return Api.IAM, [Access(ACCESS_SECRET, secret_resource(accessed["secret"]))]
    if method == "POST" and _TEST_PERMISSIONS.fullmatch(path):
        return Api.IAM, []
    if method == "GET" and path == _ADDRESS:
        return Api.COMPUTE, []
    if path.startswith("/compute/v1/"):
        return Api.COMPUTE, list(compute_access.required_access(method, path, body))
    for verb, pattern, api, permission in _CALLS:
        if verb == method and re.fullmatch(pattern, path):
            accounts = (compute_access.act_as(email) for email in _accounts_of_nodes(body))
            return api, [Access(permission, "project"), *accounts]
    raise KeyError(f"{method} {path}")


def _accounts_of_nodes(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the service accounts that TPU nodes in the call's body have."""
    nodes = [body]
    queued = body.get("tpu")
    if isinstance(queued, dict):
        nodes += [spec.get("node", {}) for spec in queued.get("nodeSpec", [])]
    for node in nodes:
        account = node.get("serviceAccount")
        if isinstance(account, dict) and account.get("email"):
            yield str(account["email"])


def secret_resource(path: str) -> str:
    """Return the name of a secret in messages and grants."""
    return f"secret {path.rpartition('/')[2]}"


def refusal(account: str, missing: Access) -> str:
    """Return the message of a refused call, which names the account and the permission."""
    return f"{account} does not have the permission {missing.permission} on {missing.resource}"


def is_granted(access: Access, grants: frozenset[Access]) -> bool:
    if access.permission.startswith("tpu.") and Access(ALL_OF_TPU, access.resource) in grants:
        return True
    return access in grants
