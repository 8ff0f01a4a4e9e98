"""Find the resource that a SKU prices, by the SKU's description.

The catalogue has no field for a machine series or a GPU type: only the description distinguishes
them. The patterns match the whole description, because many differ in one word (`Custom`, `Sole
Tenancy`, `DWS Calendar Mode`, `Regional`). A resource whose SKU is not certain has no pattern, and
no price.

Sources: descriptions in Google's own SKU groups and billing examples, and the catalogues of
SkyPilot and dstack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.core.machines.families import FAMILIES
from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.tpus import GENERATIONS
from trainmaster.core.model.purchase import Pricing
from trainmaster.cost.sku import Sku


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """Something with a price per unit."""

    name: str
    """`n1 core`, `n1 ram`, `nvidia-tesla-t4`, `v5litepod`, `pd-ssd`, `local-ssd`."""
    unit: str
    """The unit of its SKUs, as in `Sku.unit`."""


HOUR: Final = "h"
GIB_HOUR: Final = "GiBy.h"
GIB_MONTH: Final = "GiBy.mo"
GIB: Final = "GiBy"

SERIES: Final = {family.series: family.sku for family in FAMILIES if family.sku}
"""Machine series → its name in descriptions. a3 is A3 High; A3 Mega and later have other SKUs."""
_GPUS: Final = {name: gpu.sku for name, gpu in GPUS.items() if gpu.sku}
_TPUS: Final = {table.prefix: table.sku for table in GENERATIONS.values() if table.sku}
"""Prefix of Cloud TPU's type names → generation in descriptions; priced per chip."""
_DISKS: Final = {
    "pd-standard": "Storage PD Capacity",
    "pd-balanced": "Balanced PD Capacity",
    "pd-ssd": "SSD backed PD Capacity",
}
_TRANSFER: Final = "Network Data Transfer GCP Inter Region within"
CONTINENTS: Final = {"us": "Northern America", "europe": "Europe"}
"""First part of a region's name → its continent in Cloud Storage's descriptions of transfers."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """The SKUs that price a resource: those that meet all of these conditions."""

    resource: Resource
    pricing: Pricing
    pattern: re.Pattern[str]
    """Matches the whole description."""
    groups: frozenset[str]
    """The resource group is one of these; empty: any."""
    family: str


_USAGE_TYPES: Final = {Pricing.ON_DEMAND: "OnDemand", Pricing.SPOT: "Preemptible"}
"""`Sku.usage_type` of each way to buy."""
_ATTACHED_TO: Final = {Pricing.ON_DEMAND: "", Pricing.SPOT: " attached to Spot Preemptible VMs"}


def _rules() -> tuple[_Rule, ...]:
    """Return one rule for each resource and each way in which it is bought."""
    rules: list[_Rule] = []

    def add(
        resource: Resource,
        pricing: Pricing,
        pattern: str,
        groups: set[str],
        family: str = "Compute",
    ) -> None:
        rules.append(_Rule(resource, pricing, re.compile(pattern), frozenset(groups), family))

    for pricing in Pricing:
        prefix = "Spot Preemptible " if pricing is Pricing.SPOT else ""
        suffix = f"{_ATTACHED_TO[pricing]} running in .+"
        for series, name in SERIES.items():
            core = Resource(f"{series} core", HOUR)
            ram = Resource(f"{series} ram", GIB_HOUR)
            add(core, pricing, f"{prefix}{name} Core running in .+", {"CPU", "N1Standard"})
            add(ram, pricing, f"{prefix}{name} Ram running in .+", {"RAM", "N1Standard"})
        for gpu, name in _GPUS.items():
            add(Resource(gpu, HOUR), pricing, f"{name} GPU{suffix}", {"GPU"})
        for tpu, name in _TPUS.items():
            add(Resource(tpu, HOUR), pricing, f"{name}{suffix}", {"TPU"})
        local_ssd = f"SSD backed Local Storage{_ATTACHED_TO[pricing]}(?: in .+)?"
        add(Resource("local-ssd", GIB_MONTH), pricing, local_ssd, {"LocalSSD"}, "Storage")
    for disk, name in _DISKS.items():
        add(
            Resource(disk, GIB_MONTH),
            Pricing.ON_DEMAND,
            f"{name}(?: in .+)?",
            {"SSD", "PDStandard"},
            "Storage",
        )
    for name in CONTINENTS.values():
        add(
            Resource(f"transfer within {name}", GIB),
            Pricing.ON_DEMAND,
            f"{_TRANSFER} {name}",
            set(),
            "Network",
        )
    return tuple(rules)


_RULES: Final = _rules()
RESOURCES: Final = frozenset(rule.resource for rule in _RULES)
"""Every resource that may have a price."""


def resource_of(sku: Sku) -> tuple[Resource, Pricing] | None:
    """Return what the SKU prices, and how it is bought; None: nothing that jobs use."""
    for rule in _RULES:
        is_category = (
            sku.family == rule.family
            and (not rule.groups or sku.group in rule.groups)
            and sku.usage_type == _USAGE_TYPES[rule.pricing]
            and sku.unit == rule.resource.unit
        )
        if is_category and rule.pattern.fullmatch(sku.description):
            return rule.resource, rule.pricing
    return None
