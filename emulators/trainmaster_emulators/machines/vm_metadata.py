"""The contents of a VM's metadata tree at power-on, and its identity.

Source of the keys: https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.metadata_tree import Document, Secret, Tree
from trainmaster_emulators.machines.vm_tokens import VmIdentity

NO_MAINTENANCE = "NONE"


@dataclass(frozen=True, slots=True)
class Project:
    """A Google Cloud project."""

    id: str
    number: int

    @property
    def default_account(self) -> str:
        """E-mail address of Compute Engine's default service account."""
        return f"{self.number}-compute@developer.gserviceaccount.com"


def build_tree(instance: Instance, project: Project, ip: str) -> Tree:
    """Return the tree below `/computeMetadata/v1/`."""
    properties = instance.properties
    scheduling = properties.scheduling
    numbered = f"projects/{project.number}"
    accounts: Tree = {}
    if properties.service_account is not None:
        account: Tree = {
            "aliases": ["default"],
            "email": properties.service_account,
            "identity": Secret(),
            "scopes": list(properties.scopes),
            "token": Secret(),
        }
        accounts = {"default": account, properties.service_account: dict(account)}
    maintenance: Tree = {}
    if properties.accelerators:  # other VMs learn of maintenance only when it begins
        maintenance = {"upcoming-maintenance": Document(body={})}
    return {
        "instance": {
            "attributes": dict(instance.metadata),
            "cpu-platform": "Intel Broadwell",
            "description": str(properties.shown.get("description", "")),
            "guest-attributes": instance.guest_attributes,
            "hostname": f"{instance.name}.{instance.zone}.c.{project.id}.internal",
            "id": instance.id,
            "image": _image_name(instance),
            "machine-type": f"{numbered}/machineTypes/{properties.machine_type}",
            "maintenance-event": NO_MAINTENANCE,
            "name": instance.name,
            "network-interfaces": {"0": {"ip": ip, "network": f"{numbered}/networks/default"}},
            "preempted": "FALSE",
            "scheduling": {
                "automatic-restart": str(scheduling.automatic_restart).upper(),
                "on-host-maintenance": scheduling.on_host_maintenance,
                "preemptible": str(scheduling.spot).upper(),
            },
            "service-accounts": accounts,
            **maintenance,
            "tags": list((properties.shown.get("tags") or {}).get("items") or ()),
            "zone": f"{numbered}/zones/{instance.zone}",
        },
        "project": {
            "attributes": {},
            "numeric-project-id": project.number,
            "project-id": project.id,
        },
        "universe": {"universe-domain": "googleapis.com"},
    }


def _image_name(instance: Instance) -> str:
    """Return the name of the boot image, empty for a TPU host.

    For a family, Compute names the image it resolved to.
    """
    disks = instance.properties.shown.get("disks") or [{}]
    source = str((disks[0].get("initializeParams") or {}).get("sourceImage") or "")
    return re.sub(r"^.*?(?=projects/)", "", source.replace("/family/", "/"))


def vm_identity(instance: Instance, project: Project) -> VmIdentity | None:
    """Return the identity for tokens; None for a VM without a service account: it has no tokens."""
    if instance.properties.service_account is None:
        return None
    return VmIdentity(
        email=instance.properties.service_account,
        project=project.id,
        project_number=project.number,
        zone=instance.zone,
        instance_id=instance.id,
        instance_name=instance.name,
        created_at=instance.created_at,
    )
