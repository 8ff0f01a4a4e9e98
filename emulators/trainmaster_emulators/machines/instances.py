"""The instance resource: a VM that exists, with its state, and its JSON representation.

The requested properties are in `properties`, the transitions between states in `vm_transitions`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from trainmaster_emulators.machines.catalog import Links
from trainmaster_emulators.machines.compute_errors import Json
from trainmaster_emulators.machines.metadata_server import MetadataServer
from trainmaster_emulators.machines.metadata_tree import MetadataTree
from trainmaster_emulators.machines.operations import Operation, timestamp
from trainmaster_emulators.machines.powered_vm import Disk, PoweredVm
from trainmaster_emulators.machines.properties import Properties

NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


class Status(StrEnum):
    """Compute Engine's states of a VM."""

    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"


BEING_CREATED: Final = frozenset({Status.PROVISIONING, Status.STAGING})
"""The VM does not run yet."""


def fingerprint(value: object) -> str:
    """Return a fingerprint of contents. Like Google's, it is the same for the same contents."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


@dataclass(slots=True, eq=False)
class Instance:
    """A VM that exists."""

    name: str
    zone: str
    id: int
    properties: Properties
    """The requested properties; they do not change."""
    disk: Disk
    metadata: dict[str, str]
    """The user's metadata (`instance/attributes/`); setMetadata replaces it."""
    labels: dict[str, str]
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    status: Status = Status.PROVISIONING
    deleted: bool = False
    transition_lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during a transition from one status to another."""
    guest_attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Values that the VM wrote, by namespace and key. They outlive a power-off."""
    boots: int = 0
    """Number of power-ons. An event that was planned for one power-on compares this number."""
    preemption: Operation | None = None
    """The event that took the VM before it ran; its insert fails."""
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    vm: PoweredVm | None = None
    """The VM's processes. This field and the next three are set while the VM is powered on."""
    metadata_tree: MetadataTree | None = None
    metadata_server: MetadataServer | None = None
    run_limit_timer: threading.Timer | None = None

    def path(self, links: Links) -> str:
        return links.path("zones", self.zone, "instances", self.name)

    def link(self, links: Links) -> str:
        return links("zones", self.zone, "instances", self.name)

    @property
    def metadata_fingerprint(self) -> str:
        return fingerprint(["metadata", self.id, self.metadata])

    @property
    def label_fingerprint(self) -> str:
        return fingerprint(["labels", self.id, self.labels])

    @property
    def ends_at(self) -> datetime | None:
        """Time at which the run limit, counted from the last start, stops or deletes the VM. None:
        it has no limit, or has not started.
        """
        if self.started_at is None or self.properties.scheduling.max_run_s is None:
            return None
        return self.started_at + timedelta(seconds=self.properties.scheduling.max_run_s)

    def as_json(self, links: Links) -> Json:
        properties = self.properties
        zonal = ("zones", self.zone)
        shown: Json = {
            "kind": "compute#instance",
            "id": str(self.id),
            "creationTimestamp": timestamp(self.created_at),
            "name": self.name,
            **properties.shown,
            "machineType": links(*zonal, "machineTypes", properties.machine_type),
            "status": self.status.value,
            "zone": links(*zonal),
            "canIpForward": False,
            "cpuPlatform": "Intel Broadwell",
            "networkInterfaces": [
                _network_interface(links, requested)
                for requested in properties.shown["networkInterfaces"]
            ],
            "disks": [
                _disk(links, self, index, disk)
                for index, disk in enumerate(properties.shown["disks"])
            ],
            "metadata": {
                "kind": "compute#metadata",
                "fingerprint": self.metadata_fingerprint,
                "items": [{"key": key, "value": value} for key, value in self.metadata.items()],
            },
            "labels": dict(self.labels),
            "labelFingerprint": self.label_fingerprint,
            "scheduling": properties.scheduling.as_json(),
            "startRestricted": False,
            "deletionProtection": bool(properties.shown.get("deletionProtection")),
            "selfLink": self.link(links),
            "fingerprint": fingerprint([self.id, self.status]),
        }
        if properties.service_account is not None:
            shown["serviceAccounts"] = [
                {"email": properties.service_account, "scopes": list(properties.scopes)}
            ]
        if properties.accelerators:
            shown["guestAccelerators"] = [
                {
                    "acceleratorType": links(*zonal, "acceleratorTypes", kind),
                    "acceleratorCount": count,
                }
                for kind, count in properties.accelerators
            ]
        if properties.resource_policies:
            region = self.zone.rpartition("-")[0]
            shown["resourcePolicies"] = [
                links("regions", region, "resourcePolicies", name)
                for name in properties.resource_policies
            ]
        if self.started_at is not None:
            shown["lastStartTimestamp"] = timestamp(self.started_at)
        if self.stopped_at is not None:
            shown["lastStopTimestamp"] = timestamp(self.stopped_at)
        if self.ends_at is not None and self.status is Status.RUNNING:
            shown["resourceStatus"] = {
                "scheduling": {"terminationTimestamp": timestamp(self.ends_at)}
            }
        return shown


def _network_interface(links: Links, requested: Json) -> Json:
    """Return an interface with the loopback address, which is the VM's real network."""
    shown_unchanged = {
        key: value
        for key, value in requested.items()
        if key in ("network", "subnetwork", "accessConfigs")
    }
    return {
        "kind": "compute#networkInterface",
        "name": "nic0",
        "networkIP": "127.0.0.1",
        "stackType": "IPV4_ONLY",
        "fingerprint": fingerprint(requested),
        "network": links("global", "networks", "default"),
        **shown_unchanged,
    }


def _disk(links: Links, instance: Instance, index: int, requested: Json) -> Json:
    parameters = requested.get("initializeParams") or {}
    shown: Json = {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "index": index,
        "boot": bool(requested.get("boot", index == 0)),
        "autoDelete": bool(requested.get("autoDelete", False)),
        "deviceName": requested.get("deviceName") or f"persistent-disk-{index}",
        "diskSizeGb": str(parameters.get("diskSizeGb") or 10),
        "source": links("zones", instance.zone, "disks", instance.name),
        "interface": "SCSI",
    }
    if "diskEncryptionKey" in requested:
        shown["diskEncryptionKey"] = requested["diskEncryptionKey"]
    return shown
