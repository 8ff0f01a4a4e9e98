"""What Compute Engine's machine families take: GPUs of their own, boot disks, live migration, placement side by side.

Names alone decide. Families that are not in these tables are as n1 is.
"""

from __future__ import annotations

from typing import Final

from shared.core.model.plan import Plan, TaskGroup

_WITH_GPUS: Final = ("a2-", "a3-", "a4-", "g2-", "g4-")
"""Source: Compute Engine "GPU machine types": their GPUs come with the machine type."""
_SIDE_BY_SIDE: Final = ("a2-", "a3-", "a4-")
"""Where the network between VMs is what a gang waits for. Source: "Placement policies overview", machine series."""

PD_STANDARD: Final = "pd-standard"
PD_BALANCED: Final = "pd-balanced"
PD_SSD: Final = "pd-ssd"
HYPERDISK_BALANCED: Final = "hyperdisk-balanced"

# Source: Compute Engine "Choose a disk type", machine series support; Vertex AI's DiskSpec says the same of A3 Ultra.
_BOOT_DISKS: Final = {
    **dict.fromkeys(("n4-", "n4d-", "c4-", "c4d-", "a3-ultragpu-", "a4-", "g4-"), (HYPERDISK_BALANCED,)),
    **dict.fromkeys(("c3-", "c3d-", "m3-", "a3-"), (PD_BALANCED, PD_SSD, HYPERDISK_BALANCED)),
    "g2-": (PD_BALANCED, PD_SSD),
}
_ANY_PERSISTENT_DISK: Final = (PD_BALANCED, PD_STANDARD, PD_SSD)


def brings_gpus(machine_type: str) -> bool:
    return machine_type.startswith(_WITH_GPUS)


def has_gpus(group: TaskGroup) -> bool:
    return group.accelerator is not None or brings_gpus(group.machine_type)


def migrates(group: TaskGroup, *, spot: bool) -> bool:
    """Whether host maintenance moves the VM live instead of ending it. Source: "Set VM host maintenance policy": VMs
    with GPUs and Spot VMs can only stop; E2 VMs can only migrate."""
    return not spot and not has_gpus(group)


def goes_side_by_side(plan: Plan, group: TaskGroup) -> bool:
    """Whether its VMs are placed close to each other: those of a gang with its GPUs on a fast network. A reservation
    brings its own placement."""
    return group.count > 1 and group.machine_type.startswith(_SIDE_BY_SIDE) and plan.reservation is None


def boot_disk_types(machine_type: str) -> tuple[str, ...]:
    """Those the machine can boot from, its all-rounder first."""
    fitting = [prefix for prefix in _BOOT_DISKS if machine_type.startswith(prefix)]
    return _BOOT_DISKS[max(fitting, key=len)] if fitting else _ANY_PERSISTENT_DISK


def boot_disk_type(machine_type: str, asked: str) -> str:
    """What was asked for where the machine can boot from it, else its all-rounder."""
    types = boot_disk_types(machine_type)
    return asked if asked in types else types[0]
