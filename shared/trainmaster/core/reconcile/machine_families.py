"""Properties of VMs that follow from their machine types: live migration, compact placement, boot
disk.
"""

from __future__ import annotations

from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.purchase import PriceClass, Reserved
from trainmaster.core.model.task_group import TaskGroup


def has_gpus(group: TaskGroup) -> bool:
    """Whether the group's VMs have GPUs, built in or attached."""
    return group.accelerator is not None or bool(family_of(group.machine_type).gpu)


def supports_live_migration(group: TaskGroup, price: PriceClass) -> bool:
    """Whether host maintenance moves a VM of the group live instead of stopping it.

    Source: "Set VM host maintenance policy": VMs with GPUs and Spot VMs can only stop, E2 VMs can
    only migrate.
    """
    return not price.is_preemptible and not has_gpus(group)


def needs_compact_placement(group: TaskGroup) -> bool:
    """Whether the group's VMs are placed close to each other.

    A reservation has its own placement.
    """
    return (
        group.count > 1
        and family_of(group.machine_type).needs_compact_placement
        and not any(isinstance(price, Reserved) for price in group.purchase.prices)
    )


def boot_disk_type(machine_type: str, requested: str) -> str:
    """Return the requested disk type if the machine type can boot from it, else the machine type's
    default, such as Hyperdisk where a family has nothing else.
    """
    types = family_of(machine_type).boot_disks
    return requested if requested in types else types[0]
