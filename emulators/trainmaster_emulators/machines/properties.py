"""The requested properties of an instance, with Compute's checks of a request.

The checks are those that a control plane can violate: names, references, metadata sizes, disk types
that a machine cannot boot from, and the rules of GPU and Spot VMs (`scheduling`). Source: Compute's
reference for instances.insert and setMetadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster_emulators.machines.catalog import ACCELERATOR_TYPES, Catalog, basename
from trainmaster_emulators.machines.compute_errors import ApiError, Json, invalid, required
from trainmaster_emulators.machines.scheduling import (
    RESERVATION_BOUND,
    Scheduling,
    parse_scheduling,
)

_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9-_]{1,127}")
_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_KMS_KEY: Final = re.compile(
    r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+(/cryptoKeyVersions/[0-9]+)?"
)
_RESERVATION_KEY: Final = "compute.googleapis.com/reservation-name"
METADATA_VALUE_BYTES_MAX: Final = 256 * 1024
METADATA_BYTES_MAX: Final = 512 * 1024
LABELS_MAX: Final = 64
DISK_GB_MIN: Final = 10
DEEP_LEARNING_GB: Final = 50
"""Size of the Deep Learning VM images.

Source: "Create a Deep Learning VM instance", boot disk size.
"""
_DEEP_LEARNING: Final = "deeplearning-platform-release/"
"""Part of the names of these images: their project."""
CLOUD_PLATFORM_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
# Fields that this emulator returns as they were requested
_SHOWN: Final = (
    "description",
    "tags",
    "minCpuPlatform",
    "shieldedInstanceConfig",
    "deletionProtection",
    "reservationAffinity",
)


@dataclass(frozen=True, slots=True)
class Properties:
    """The valid properties of an insert; all VMs of a bulk insert share them."""

    machine_type: str
    environment: str | None
    """Python environment of the image; None: only the machine's own programs."""
    scheduling: Scheduling
    metadata: Mapping[str, str]
    labels: Mapping[str, str]
    service_account: str | None
    """E-mail address; None: no tokens."""
    scopes: tuple[str, ...]
    accelerators: tuple[tuple[str, int], ...]
    """Type and count of each kind."""
    shown: Json
    """Fields of the request that the resource shows unchanged."""
    resource_policies: tuple[str, ...] = ()
    """Names, such as that of a placement policy."""

    @property
    def attachment(self) -> str:
        """The accelerators as error messages contain them."""
        return ",".join(f"{kind}:{count}" for kind, count in self.accelerators)


def parse_properties(
    body: Json, zone: str, catalog: Catalog, project_email: str, run_s_min: float
) -> Properties:
    """Check all of a request except the name. Raises the ApiError that Google returns.

    `project_email`: the default service account. `run_s_min`: the shortest `maxRunDuration` that is
    accepted.
    """
    machine_type = parse_machine_type(body, zone, catalog)
    accelerators = parse_accelerators(body, zone, machine_type, catalog)
    disks = body.get("disks") or ()
    if not disks:
        raise ApiError(
            400,
            "invalid",
            "Invalid value for field 'resource.disks': ''. At least one disk is required.",
        )
    image = str((disks[0].get("initializeParams") or {}).get("sourceImage") or "")
    for disk in disks:
        _check_disk(disk, machine_type, catalog)
    scheduling = parse_scheduling(
        body.get("scheduling") or {}, machine_type, has_gpus=bool(accelerators), run_s_min=run_s_min
    )
    _check_reservation(body.get("reservationAffinity") or {}, scheduling)
    account = next(iter(body.get("serviceAccounts") or ()), None)
    email = str(account.get("email") or "default") if account else None
    return Properties(
        machine_type=machine_type,
        environment=catalog.environment_of(image),
        scheduling=scheduling,
        metadata=parse_metadata(body.get("metadata") or {}),
        labels=parse_labels(body.get("labels") or {}),
        service_account=project_email if email == "default" else email,
        scopes=tuple((account or {}).get("scopes") or (CLOUD_PLATFORM_SCOPE,)),
        accelerators=accelerators,
        shown={
            **{key: body[key] for key in _SHOWN if key in body},
            "disks": disks,
            "networkInterfaces": body.get("networkInterfaces") or [{}],
        },
        resource_policies=tuple(basename(name) for name in body.get("resourcePolicies") or ()),
    )


def parse_machine_type(body: Json, zone: str, catalog: Catalog) -> str:
    """Return the machine type's name. Raises ApiError if the zone does not have it."""
    name = basename(str(body.get("machineType") or ""))
    if not name:
        raise required("resource.machineType")
    try:
        catalog.machine_type(zone, name)
    except ApiError:
        why = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        raise invalid("resource.machineType", body["machineType"], why) from None
    return name


def parse_accelerators(
    body: Json, zone: str, machine_type: str, catalog: Catalog
) -> tuple[tuple[str, int], ...]:
    """Return the accelerators of the machine type, or those attached to it.

    A request may repeat the built-in ones.
    """
    attached = []
    for requested in body.get("guestAccelerators") or ():
        kind = basename(str(requested.get("acceleratorType", "")))
        if kind not in ACCELERATOR_TYPES:
            why = f"Accelerator type with name '{kind}' does not exist in zone '{zone}'."
            raise invalid("resource.guestAccelerators[0].acceleratorType", kind, why)
        attached.append((kind, int(requested.get("acceleratorCount", 1))))
    built_in = catalog.accelerators_of(zone, machine_type)
    is_attachable = machine_type.startswith("n1-")  # no other family takes GPUs of one's choice
    if attached and built_in != tuple(attached) and not is_attachable:
        message = (
            f"[{attached[0][0]}, {machine_type}] features are not compatible for creating instance."
        )
        raise ApiError(400, "badRequest", message)
    return built_in or tuple(attached)


def _check_disk(disk: Json, machine_type: str, catalog: Catalog) -> None:
    parameters = disk.get("initializeParams") or {}
    kind = basename(str(parameters.get("diskType") or ""))
    if kind and kind not in catalog.disk_types_of(machine_type):
        message = f"[{kind}, {machine_type}] features are not compatible for creating instance."
        raise ApiError(400, "badRequest", message)
    image_gb = (
        DEEP_LEARNING_GB if _DEEP_LEARNING in str(parameters.get("sourceImage")) else DISK_GB_MIN
    )
    size_gb = int(parameters.get("diskSizeGb") or image_gb)
    if size_gb < image_gb:
        why = f"Requested disk size cannot be smaller than the image size ({image_gb} GB)."
        raise invalid("resource.disks[0].initializeParams.diskSizeGb", size_gb, why)
    key = str((disk.get("diskEncryptionKey") or {}).get("kmsKeyName") or "")
    if key and not _KMS_KEY.fullmatch(key):
        why = "Must be projects/P/locations/L/keyRings/R/cryptoKeys/K."
        raise invalid("resource.disks[0].diskEncryptionKey.kmsKeyName", key, why)


def _check_reservation(affinity: Json, scheduling: Scheduling) -> None:
    kind = affinity.get("consumeReservationType")
    if kind != "SPECIFIC_RESERVATION" and scheduling.model == RESERVATION_BOUND:
        why = "The provisioning model RESERVATION_BOUND requires a specific reservation."
        raise invalid("resource.reservationAffinity.consumeReservationType", kind or "", why)
    if kind != "SPECIFIC_RESERVATION":
        return
    if affinity.get("key") != _RESERVATION_KEY or not affinity.get("values"):
        why = f"A specific reservation requires the key {_RESERVATION_KEY} and its name as value."
        raise invalid("resource.reservationAffinity.key", affinity.get("key", ""), why)
    if scheduling.spot:
        why = "Spot VMs cannot consume reservations."
        raise invalid("resource.reservationAffinity.consumeReservationType", kind, why)


def parse_metadata(body: Json) -> dict[str, str]:
    """Return the items of a Metadata resource as a mapping. Raises ApiError (400)."""
    items: dict[str, str] = {}
    for item in body.get("items") or ():
        key = str(item.get("key", ""))
        value = str(item.get("value") or "")
        if not _METADATA_KEY.fullmatch(key):
            raise invalid(
                "metadata.items.key", key, f"Must be a match of regex '{_METADATA_KEY.pattern}'."
            )
        if key in items:
            raise invalid("metadata.items", key, f"Metadata has duplicate key: {key}.")
        if len(value.encode()) > METADATA_VALUE_BYTES_MAX:
            why = (
                f"The total length of a metadata value must be at most {METADATA_VALUE_BYTES_MAX}"
                " bytes."
            )
            raise invalid(f"metadata.items.{key}", f"{len(value.encode())} bytes", why)
        items[key] = value
    size = sum(len(key.encode()) + len(value.encode()) for key, value in items.items())
    if size > METADATA_BYTES_MAX:
        raise invalid(
            "metadata.items",
            f"{size} bytes",
            f"All metadata must be at most {METADATA_BYTES_MAX} bytes.",
        )
    return items


def parse_labels(labels: Mapping[str, Any]) -> dict[str, str]:
    if len(labels) > LABELS_MAX:
        raise invalid("resource.labels", f"{len(labels)} labels", f"Must be at most {LABELS_MAX}.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            why = (
                "Keys and values may have 63 lower case letters, digits, _ and -. Keys must begin"
                " with a letter."
            )
            raise invalid("resource.labels", f"{key}={value}", why)
    return {key: str(value) for key, value in labels.items()}
