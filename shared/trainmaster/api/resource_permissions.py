"""Check that the caller may use the resources of Google Cloud that a job names.

Google answers for the caller's token, because Trainmaster will use the resources with its own
permissions. A service account has permissions of its own (`actAs`). For other resources, the
permission counts on the project of the resource: one query for each project, and the same rule for
all kinds. A permission on the single resource does not suffice: the setting
`TRAINMASTER_ALLOWED_RESOURCES` opens such a resource to all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trainmaster.api import errors
from trainmaster.api.request import Call, Service
from trainmaster.core.intake.named_resources import NamedResource, ResourceKind

PERMISSIONS: Final[Mapping[ResourceKind, tuple[str, ...]]] = {
    ResourceKind.NETWORK: ("compute.networks.use", "compute.subnetworks.use"),
    ResourceKind.IMAGE: ("compute.images.useReadOnly",),
    # Compute Engine has no permission for using a reservation: everyone who creates VMs in the
    # project may name it.
    ResourceKind.RESERVATION: ("compute.instances.create",),
    ResourceKind.KMS_KEY: ("cloudkms.cryptoKeyVersions.useToEncrypt",),
    ResourceKind.SECRET: ("secretmanager.versions.access",),
}
"""Kind of resource → the permissions on its project that its user needs.

Source: the APIs' own requirements.
"""


def check_resources(resources: Sequence[NamedResource], call: Call, service: Service) -> None:
    """Raise ApiError for the first resource that the caller may not use.

    Resources that are open to every job are not checked.
    """
    checked = [resource for resource in resources if not service.deps.allowed.allow(resource)]
    others: list[NamedResource] = []
    for resource in checked:
        if resource.kind is ResourceKind.SERVICE_ACCOUNT:
            _check_account(resource.name, call, service)
        else:
            others.append(resource)
    granted = _permissions_by_project(others, call, service)
    for resource in others:
        required = PERMISSIONS[resource.kind]
        if not granted[_project_of(resource, service)].issuperset(required):
            raise errors.cannot_use(resource.field, resource.name, required)


def _check_account(account: str, call: Call, service: Service) -> None:
    # Every caller may use the installation's own account, as every user of AI Platform Training
    # could use that of the service.
    if account == service.service_account:
        return
    if not service.access.may_act_as(call.token, account):
        raise errors.cannot_act_as(account)


def _permissions_by_project(
    resources: Sequence[NamedResource], call: Call, service: Service
) -> dict[str, frozenset[str]]:
    """Return, for each project of a resource, the needed permissions that the caller has on it.

    Projects are as in `_project_of`.
    """
    required: dict[str, set[str]] = {}
    for resource in resources:
        of_project = required.setdefault(_project_of(resource, service), set())
        of_project.update(PERMISSIONS[resource.kind])
    return {
        project: service.access.granted_permissions(call.token, sorted(permissions), project)
        for project, permissions in required.items()
    }


def _project_of(resource: NamedResource, service: Service) -> str:
    """Return the project's id or number; empty for the installation's."""
    _, project, *_ = resource.full_name(service.project).split("/")  # projects/PROJECT/…
    return "" if project == service.project else project
