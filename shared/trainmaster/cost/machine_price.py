"""The list price of one machine of a role, per hour: vCPUs, memory, GPUs, local SSDs and boot disk, or TPU chips."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from trainmaster.core.model.plan import Accelerator, Plan, TaskGroup, Tpu
from trainmaster.core.reconcile.machine_families import boot_disk_type
from trainmaster.cost.machine_shapes import shape_of
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.cost.sku_resources import GIB_HOUR, GIB_MONTH, HOUR, RESOURCES, Pricing, Resource
from trainmaster.jobspec.catalog.tpu_types import GENERATIONS

HOURS_PER_MONTH: Final = 730
"""As in Google's pricing pages: prices per GiB month are charged per second, as 1/730 of a month per hour."""
LOCAL_SSD: Final = Resource("local-ssd", GIB_MONTH)
Part = tuple[Resource, Decimal, Pricing]
"""A resource, its amount in one machine (GiB for memory and disks), and how it is bought."""


def machine_price(plan: Plan, group: TaskGroup, prices: PriceList, *, is_spot: bool) -> Decimal | Unknown:
    """Return the price of one machine of the role per hour; for a slice, of one of its hosts."""
    parts = machine_parts(plan, group, is_spot=is_spot)
    return parts if isinstance(parts, Unknown) else sum_of_parts(parts, plan.region, prices)


def sum_of_parts(parts: Iterable[Part], region: str, prices: PriceList) -> Decimal | Unknown:
    """Return the price of these parts together per hour."""
    total = Decimal(0)
    for resource, number, pricing in parts:
        price = prices.price(resource, region, pricing)
        if isinstance(price, Unknown):
            return price
        total += number * price / (HOURS_PER_MONTH if resource.unit == GIB_MONTH else 1)
    return total


def machine_parts(plan: Plan, group: TaskGroup, *, is_spot: bool) -> tuple[Part, ...] | Unknown:
    """Return what one machine of the role consists of."""
    if plan.reservation is not None:
        return Unknown(f"the job uses the reservation {plan.reservation}, which is paid for whether or not it is used")
    pricing = Pricing.SPOT if is_spot else Pricing.ON_DEMAND
    if group.tpu is not None:
        return _chips(group.tpu, pricing)
    parts = vm_parts(group.machine_type, group.accelerator, pricing)
    if isinstance(parts, Unknown):
        return parts
    disk = Resource(boot_disk_type(group.machine_type, group.boot_disk_type), GIB_MONTH)
    if disk not in RESOURCES:
        return Unknown(f"Trainmaster does not know for certain which SKUs a boot disk of type {disk.name} has")
    return (*parts, (disk, Decimal(group.boot_disk_gib), Pricing.ON_DEMAND))


def vm_parts(machine_type: str, accelerator: Accelerator | None, pricing: Pricing) -> tuple[Part, ...] | Unknown:
    """Return what a VM consists of, without its boot disk."""
    shape = shape_of(machine_type)
    if shape is None:
        return Unknown(f"Trainmaster does not know for certain which SKUs {machine_type} has")
    parts: list[Part] = [
        (Resource(f"{shape.series} core", HOUR), shape.vcpus, pricing),
        (Resource(f"{shape.series} ram", GIB_HOUR), shape.memory_gib, pricing),
    ]
    if shape.local_ssd_gib:
        parts.append((LOCAL_SSD, Decimal(shape.local_ssd_gib), pricing))
    if accelerator is not None:
        gpu = Resource(accelerator.type, HOUR)
        if gpu not in RESOURCES:
            return Unknown(f"Trainmaster does not know for certain which SKU {gpu.name} has")
        parts.append((gpu, Decimal(accelerator.count), pricing))
    return tuple(parts)


def _chips(tpu: Tpu, pricing: Pricing) -> tuple[Part, ...] | Unknown:
    """Return the chips of one host. Host, memory and boot disk are part of the chips' price."""
    if tpu.queue is not None and tpu.queue.value == "flex_start":
        return Unknown("flex-start slices have a price of their own, which the price list does not have")
    prefix, _, size = tpu.type.rpartition("-")
    generation = next((known for known in GENERATIONS.values() if known.prefix == prefix), None)
    resource = Resource(prefix, HOUR)
    if generation is None or resource not in RESOURCES:
        return Unknown(f"Trainmaster does not know for certain which SKU the chips of {tpu.type} have")
    return ((resource, Decimal(generation.chips(int(size))) / tpu.hosts, pricing),)
