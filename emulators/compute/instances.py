"""The instance resource: what a request may say, what Google fills in, and how it is shown.

    PROVISIONING ─► STAGING ─► RUNNING ─► STOPPING ─► TERMINATED ─► (start) STAGING …
                                              └────► gone

Checks are those a control plane can run into: names, references, metadata sizes, scheduling rules of GPU and Spot VMs.
Source: Compute's reference for instances.insert, setMetadata, Scheduling.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from emulators.compute.catalog import ACCELERATOR_TYPES, Catalog, Links, basename
from emulators.compute.errors import ApiError, Json, invalid, required
from emulators.compute.metadata_server import GuestMetadata, MetadataServer
from emulators.compute.operations import timestamp
from emulators.compute.vm import Disk, PoweredVm

NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9-_]{1,127}")
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
METADATA_VALUE_BYTES_MAX: Final = 256 * 1024
METADATA_BYTES_MAX: Final = 512 * 1024
RUN_DURATION_S_MAX: Final = 120 * 24 * 3600
CLOUD_PLATFORM_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class Status(StrEnum):
    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"


def fingerprint(value: object) -> str:
    """Of contents, as Google's: setting the same again gives the same."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


@dataclass(frozen=True, slots=True)
class Scheduling:
    """`max_run_s` None: no limit."""

    automatic_restart: bool
    on_host_maintenance: str
    spot: bool
    termination_action: str
    max_run_s: float | None

    def as_json(self) -> Json:
        shown: Json = {
            "onHostMaintenance": self.on_host_maintenance,
            "automaticRestart": self.automatic_restart,
            "preemptible": self.spot,
            "provisioningModel": "SPOT" if self.spot else "STANDARD",
        }
        if self.spot or self.max_run_s is not None:
            shown["instanceTerminationAction"] = self.termination_action
        if self.max_run_s is not None:
            whole = int(self.max_run_s)
            shown["maxRunDuration"] = {"seconds": str(whole), "nanos": int((self.max_run_s - whole) * 1e9)}
        return shown


@dataclass(frozen=True, slots=True)
class Properties:
    """What an insert asks for, checked; the same for every VM of a bulk insert."""

    machine_type: str
    environment: str | None
    scheduling: Scheduling
    metadata: Mapping[str, str]
    labels: Mapping[str, str]
    service_account: str | None
    scopes: tuple[str, ...]
    accelerators: tuple[tuple[str, int], ...]
    shown: Json

    @property
    def attachment(self) -> str:
        return ",".join(f"{kind}:{count}" for kind, count in self.accelerators)


def parse_properties(body: Json, zone: str, catalog: Catalog, project_email: str, run_s_min: float) -> Properties:
    """Everything of an instance but its name; raises the ApiError Google would answer with."""
    machine_type = basename(str(body.get("machineType") or ""))
    if not machine_type:
        raise required("resource.machineType")
    try:
        catalog.machine_type(zone, machine_type)
    except ApiError:
        why = f"Machine type with name '{machine_type}' does not exist in zone '{zone}'."
        raise invalid("resource.machineType", body["machineType"], why) from None
    accelerators = []
    for each in body.get("guestAccelerators") or ():
        kind = basename(str(each.get("acceleratorType", "")))
        if kind not in ACCELERATOR_TYPES:
            why = f"Accelerator type with name '{kind}' does not exist in zone '{zone}'."
            raise invalid("resource.guestAccelerators[0].acceleratorType", kind, why)
        accelerators.append((kind, int(each.get("acceleratorCount", 1))))
    disks = body.get("disks") or ()
    if not disks:
        raise ApiError(400, "invalid", "Invalid value for field 'resource.disks': ''. At least one disk is required.")
    image = str((disks[0].get("initializeParams") or {}).get("sourceImage") or "")
    scheduling = parse_scheduling(body.get("scheduling") or {}, run_s_min)
    if accelerators and scheduling.on_host_maintenance == "MIGRATE":
        raise ApiError(400, "badRequest", "Instances with guest accelerators do not support live migration.")
    account = next(iter(body.get("serviceAccounts") or ()), None)
    email = str(account.get("email") or "default") if account else None
    shown: Json = {
        key: body[key]
        for key in ("description", "tags", "minCpuPlatform", "shieldedInstanceConfig", "deletionProtection")
        if key in body
    }
    return Properties(
        machine_type=machine_type,
        environment=catalog.environment_of(image),
        scheduling=scheduling,
        metadata=parse_metadata(body.get("metadata") or {}),
        labels=parse_labels(body.get("labels") or {}),
        service_account=project_email if email == "default" else email,
        scopes=tuple((account or {}).get("scopes") or (CLOUD_PLATFORM_SCOPE,)),
        accelerators=tuple(accelerators),
        shown={**shown, "disks": disks, "networkInterfaces": body.get("networkInterfaces") or [{}]},
    )


def parse_scheduling(body: Json, run_s_min: float) -> Scheduling:
    spot = body.get("provisioningModel") == "SPOT" or bool(body.get("preemptible"))
    maintenance = str(body.get("onHostMaintenance") or ("TERMINATE" if spot else "MIGRATE"))
    restart = bool(body.get("automaticRestart", not spot))
    action = str(body.get("instanceTerminationAction") or "STOP")
    if maintenance not in ("MIGRATE", "TERMINATE"):
        raise invalid("resource.scheduling.onHostMaintenance", maintenance, "Must be MIGRATE or TERMINATE.")
    if action not in ("STOP", "DELETE"):
        raise invalid("resource.scheduling.instanceTerminationAction", action, "Must be STOP or DELETE.")
    if spot and (restart or maintenance == "MIGRATE"):
        message = "Scheduling must have preemptible be false when AutomaticRestart is true or live migration is on."
        raise ApiError(400, "invalid", message)
    max_run_s = None
    if duration := body.get("maxRunDuration"):
        max_run_s = int(duration.get("seconds") or 0) + int(duration.get("nanos") or 0) / 1e9
        if not run_s_min <= max_run_s <= RUN_DURATION_S_MAX:
            why = f"Must be between {run_s_min:g} and {RUN_DURATION_S_MAX} seconds."
            raise invalid("resource.scheduling.maxRunDuration", f"{max_run_s:g}s", why)
    return Scheduling(restart, maintenance, spot, action, max_run_s)


def parse_metadata(body: Json) -> dict[str, str]:
    """The items of a Metadata resource as a mapping."""
    items: dict[str, str] = {}
    for item in body.get("items") or ():
        key, value = str(item.get("key", "")), str(item.get("value") or "")
        if not _METADATA_KEY.fullmatch(key):
            raise invalid("metadata.items.key", key, f"Must be a match of regex '{_METADATA_KEY.pattern}'.")
        if key in items:
            raise invalid("metadata.items", key, f"Metadata has duplicate key: {key}.")
        if len(value.encode()) > METADATA_VALUE_BYTES_MAX:
            why = f"The total length of a metadata value must be at most {METADATA_VALUE_BYTES_MAX} bytes."
            raise invalid(f"metadata.items.{key}", f"{len(value.encode())} bytes", why)
        items[key] = value
    size = sum(len(key.encode()) + len(value.encode()) for key, value in items.items())
    if size > METADATA_BYTES_MAX:
        raise invalid("metadata.items", f"{size} bytes", f"All metadata must be at most {METADATA_BYTES_MAX} bytes.")
    return items


def parse_labels(labels: Json) -> dict[str, str]:
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            why = (
                "Label keys and values hold lower case letters, digits, _ and -, at most 63; keys start with a letter."
            )
            raise invalid("resource.labels", f"{key}={value}", why)
    return {key: str(value) for key, value in labels.items()}


@dataclass(slots=True, eq=False)
class Instance:
    """A VM that exists. Fields change under `Cloud.lock`; whoever drives it through its states holds `turn` meanwhile.

    `boots` counts its power-ons: what was planned for one power-on checks that it is still the same.
    """

    name: str
    zone: str
    id: int
    properties: Properties
    disk: Disk
    metadata: dict[str, str]
    labels: dict[str, str]
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    status: Status = Status.PROVISIONING
    deleted: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)
    boots: int = 0
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    vm: PoweredVm | None = None
    guest: GuestMetadata | None = None
    metadata_server: MetadataServer | None = None
    fuse: threading.Timer | None = None

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
        """When the fuse deletes or stops it; counted anew at every start."""
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
            "networkInterfaces": [_network_interface(links, each) for each in properties.shown["networkInterfaces"]],
            "disks": [_disk(links, self, index, each) for index, each in enumerate(properties.shown["disks"])],
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
            shown["serviceAccounts"] = [{"email": properties.service_account, "scopes": list(properties.scopes)}]
        if properties.accelerators:
            shown["guestAccelerators"] = [
                {"acceleratorType": links(*zonal, "acceleratorTypes", kind), "acceleratorCount": count}
                for kind, count in properties.accelerators
            ]
        for key, moment in (("lastStartTimestamp", self.started_at), ("lastStopTimestamp", self.stopped_at)):
            if moment is not None:
                shown[key] = timestamp(moment)
        if self.ends_at is not None and self.status is Status.RUNNING:
            shown["resourceStatus"] = {"scheduling": {"terminationTimestamp": timestamp(self.ends_at)}}
        return shown


def _network_interface(links: Links, asked: Json) -> Json:
    """The VM's network is this machine's loopback, and it says so."""
    return {
        "kind": "compute#networkInterface",
        "name": "nic0",
        "networkIP": "127.0.0.1",
        "stackType": "IPV4_ONLY",
        "fingerprint": fingerprint(asked),
        "network": links("global", "networks", "default"),
        **{key: value for key, value in asked.items() if key in ("network", "subnetwork", "accessConfigs")},
    }


def _disk(links: Links, instance: Instance, index: int, asked: Json) -> Json:
    parameters = asked.get("initializeParams") or {}
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "index": index,
        "boot": bool(asked.get("boot", index == 0)),
        "autoDelete": bool(asked.get("autoDelete", False)),
        "deviceName": asked.get("deviceName") or f"persistent-disk-{index}",
        "diskSizeGb": str(parameters.get("diskSizeGb") or 10),
        "source": links("zones", instance.zone, "disks", instance.name),
        "interface": "SCSI",
    }
