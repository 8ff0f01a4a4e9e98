"""The list price of one machine of a role per hour: the sum of its parts.

The parts are vCPUs, memory, GPUs, local SSDs and boot disk, or TPU chips.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from trainmaster.core.machines.machine_types import find_machine_type
from trainmaster.core.machines.tpus import TPU_VMS, Generation, generation_of
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import PriceClass, Pricing
from trainmaster.core.model.task_group import Accelerator, TaskGroup, Tpu
from trainmaster.core.reconcile.machine_families import boot_disk_type
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.cost.sku_resources import GIB_HOUR, GIB_MONTH, HOUR, RESOURCES, Resource

HOURS_PER_MONTH: Final = 730
"""A price per month is charged per second, with 730 hours in a month. Source: Google's pages."""
LOCAL_SSD: Final = Resource("local-ssd", GIB_MONTH)
Part = tuple[Resource, Decimal, Pricing]
"""A resource, its amount in one machine (GiB for memory and disks), and how it is bought."""


def machine_price(
    plan: Plan, group: TaskGroup, prices: PriceList, *, at: PriceClass
) -> Decimal | Unknown:
    """Return the price of one machine of the role per hour; for a slice, of one of its hosts.

    `at`: how it is bought.
    """
    parts = machine_parts(group, at)
    return parts if isinstance(parts, Unknown) else sum_of_parts(parts, plan.where.region, prices)


def sum_of_parts(parts: Iterable[Part], region: str, prices: PriceList) -> Decimal | Unknown:
    """Return the price of these parts together per hour."""
    total = Decimal(0)
    for resource, number, pricing in parts:
        price = prices.price(resource, region, pricing)
        if isinstance(price, Unknown):
            return price
        hours = HOURS_PER_MONTH if resource.unit == GIB_MONTH else 1
        total += number * price / hours
    return total


def list_price(name: str, region: str, prices: PriceList, pricing: Pricing) -> Decimal | Unknown:
    """Return the price per hour of a machine type, of a TPU VM, or of one GPU or TPU chip.

    A machine type is without its boot disk.
    """
    chip_or_gpu = Resource(name, HOUR)
    if chip_or_gpu in RESOURCES:
        return prices.price(chip_or_gpu, region, pricing)
    tpu = TPU_VMS.get(name)
    if tpu is not None:
        parts = _chips(tpu.generation_table, Decimal(tpu.chips), pricing)
    else:
        parts = vm_parts(name, accelerator=None, pricing=pricing)
    return parts if isinstance(parts, Unknown) else sum_of_parts(parts, region, prices)


def machine_parts(group: TaskGroup, price: PriceClass) -> tuple[Part, ...] | Unknown:
    """Return what one machine of the role consists of."""
    if price.unpriced:
        return Unknown(price.unpriced)
    if group.tpu is not None:
        return _parts_of_slice(group.tpu, price.pricing)
    parts = vm_parts(group.machine_type, group.accelerator, price.pricing)
    if isinstance(parts, Unknown):
        return parts
    disk = Resource(boot_disk_type(group.machine_type, group.boot_disk_type), GIB_MONTH)
    if disk not in RESOURCES:
        return Unknown(
            f"Trainmaster does not know for certain which SKUs a boot disk of type {disk.name} has"
        )
    return (*parts, (disk, Decimal(group.boot_disk_gib), Pricing.ON_DEMAND))


def vm_parts(
    machine_type: str, accelerator: Accelerator | None, pricing: Pricing
) -> tuple[Part, ...] | Unknown:
    """Return what a VM consists of, without its boot disk.

    `accelerator`: GPUs that are attached, or built in.
    """
    machine = find_machine_type(machine_type)
    if (
        machine is None
        or not machine.family.sku
        or machine.memory_gib is None
        or machine.local_ssd_gib is None
    ):
        return Unknown(f"Trainmaster does not know for certain which SKUs {machine_type} has")
    parts: list[Part] = [
        (
            Resource(f"{machine.family.series} core", HOUR),
            machine.billed_vcpus or Decimal(machine.vcpus),
            pricing,
        ),
        (Resource(f"{machine.family.series} ram", GIB_HOUR), machine.memory_gib, pricing),
    ]
    if machine.local_ssd_gib:
        parts.append((LOCAL_SSD, Decimal(machine.local_ssd_gib), pricing))
    accelerator = accelerator or machine.gpu
    if accelerator is not None:
        gpu = Resource(accelerator.type, HOUR)
        if gpu not in RESOURCES:
            return Unknown(f"Trainmaster does not know for certain which SKU {gpu.name} has")
        parts.append((gpu, Decimal(accelerator.count), pricing))
    return tuple(parts)


def _parts_of_slice(tpu: Tpu, pricing: Pricing) -> tuple[Part, ...] | Unknown:
    """Return the chips of one host."""
    generation = generation_of(tpu.type)
    if generation is None:
        return Unknown(f"Trainmaster does not know TPUs of the type {tpu.type}")
    size = int(tpu.type.rpartition("-")[2])
    return _chips(generation, Decimal(generation.chips(size)) / tpu.hosts, pricing)


def _chips(generation: Generation, number: Decimal, pricing: Pricing) -> tuple[Part, ...] | Unknown:
    """Return chips as a part. Their host, its memory and its boot disk are part of their price."""
    if not generation.sku:
        return Unknown(
            f"Trainmaster does not know for certain which SKU the chips of {generation.prefix} have"
        )
    return ((Resource(generation.prefix, HOUR), number, pricing),)
