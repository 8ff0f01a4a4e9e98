"""Properties of Compute Engine's machine families: built-in GPUs, boot disks, live migration, compact placement.

They follow from the name of the machine type. A family that is not in these tables has the properties of n1.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.plan import Plan, TaskGroup

_WITH_GPUS: Final = ("a2-", "a3-", "a4-", "g2-", "g4-")
"""Families with built-in GPUs. Source: Compute Engine "GPU machine types"."""
_WITH_FAST_NETWORK: Final = ("a2-", "a3-", "a4-")
"""Families whose gangs need a fast network between VMs. Source: "Placement policies overview", machine series."""

_RESERVATION_BOUND: Final = ("a3-ultragpu-", "a4-")

PD_STANDARD: Final = "pd-standard"
PD_BALANCED: Final = "pd-balanced"
PD_SSD: Final = "pd-ssd"
HYPERDISK_BALANCED: Final = "hyperdisk-balanced"

# Source: Compute Engine "Choose a disk type", machine series support; Vertex AI's DiskSpec agrees for A3 Ultra.
_BOOT_DISKS: Final = {
    **dict.fromkeys(("n4-", "n4d-", "c4-", "c4d-", "a3-ultragpu-", "a4-", "g4-"), (HYPERDISK_BALANCED,)),
    **dict.fromkeys(("c3-", "c3d-", "m3-", "a3-"), (PD_BALANCED, PD_SSD, HYPERDISK_BALANCED)),
    "g2-": (PD_BALANCED, PD_SSD),
}
_ANY_PERSISTENT_DISK: Final = (PD_BALANCED, PD_STANDARD, PD_SSD)


def brings_gpus(machine_type: str) -> bool:
    """Whether the machine type has built-in GPUs."""
    return machine_type.startswith(_WITH_GPUS)


def has_gpus(group: TaskGroup) -> bool:
    """Whether the group's VMs have GPUs, built in or attached."""
    return group.accelerator is not None or brings_gpus(group.machine_type)


def supports_live_migration(group: TaskGroup, *, spot: bool) -> bool:
    """Whether host maintenance moves a VM of the group live instead of stopping it.

    Source: "Set VM host maintenance policy": VMs with GPUs and Spot VMs can only stop, E2 VMs can only migrate.
    """
    return not spot and not has_gpus(group)


def needs_compact_placement(plan: Plan, group: TaskGroup) -> bool:
    """Whether the group's VMs are placed close to each other. A reservation has its own placement."""
    return group.count > 1 and group.machine_type.startswith(_WITH_FAST_NETWORK) and plan.reservation is None


def is_reservation_bound(machine_type: str) -> bool:
    """Whether a VM of this type that uses a reservation needs the provisioning model RESERVATION_BOUND.

    Source: "About reservation-bound VMs": A4 and A3 Ultra support no other model with a reservation. Such a VM ends
    with its reservation.
    """
    return machine_type.startswith(_RESERVATION_BOUND)


def boot_disk_types(machine_type: str) -> tuple[str, ...]:
    """Return the disk types that the machine type can boot from, the default first."""
    prefixes = [prefix for prefix in _BOOT_DISKS if machine_type.startswith(prefix)]
    return _BOOT_DISKS[max(prefixes, key=len)] if prefixes else _ANY_PERSISTENT_DISK


def boot_disk_type(machine_type: str, requested: str) -> str:
    """Return the requested disk type if the machine type can boot from it, else the machine type's default."""
    types = boot_disk_types(machine_type)
    return requested if requested in types else types[0]
