"""SKUs as Cloud Billing's catalogue describes them: what `server` lists, one price for each kind of
resource in each place.

The JSON has Google's structure. The prices are examples, close to the list prices of November 2026.
For each price there are also SKUs with similar descriptions that jobs do not use: custom machines,
sole tenancy, commitments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from trainmaster_emulators.rest.api_errors import Json

# Ids of services. Source: Cloud Billing's list of services.
COMPUTE: Final = "6F81-5844-456A"
TPU: Final = "E000-3F24-B8AA"
STORAGE: Final = "95FF-2EF5-5EA1"
NANOS: Final = 10**9
"""Billionths in a unit of money."""
PLACES: Final = {
    "Americas": ("us-central1", "us-east1", "us-west1"),
    "Netherlands": ("europe-west4",),
}
"""Name of a place in descriptions → its regions. One SKU has the price for all of them."""
_EUROPE: Final = 1.1
"""Prices in the Netherlands, as a multiple of those in the Americas."""
_SOLE_TENANCY: Final = 1.1
_CUSTOM: Final = 1.05
_COMMITTED: Final = 0.63
_DEFINED_DURATION: Final = 0.5
"""Prices of SKUs that jobs do not use, as multiples of the price that they do: whoever takes the
wrong SKU gets another amount.
"""
_SERIES: Final = (
    # name in descriptions, resource groups of cores and memory, USD per vCPU hour and GiB hour, the
    # same for Spot
    (
        "N1 Predefined Instance",
        ("N1Standard", "N1Standard"),
        (0.031611, 0.004237),
        (0.006655, 0.000892),
    ),
    ("N2 Instance", ("CPU", "RAM"), (0.031611, 0.004237), (0.00759, 0.001017)),
    ("N2D AMD Instance", ("CPU", "RAM"), (0.027502, 0.003686), (0.0057, 0.000764)),
    ("E2 Instance", ("CPU", "RAM"), (0.021811, 0.002923), (0.006543, 0.000877)),
    ("Compute optimized", ("CPU", "RAM"), (0.03398, 0.00455), (0.008156, 0.001092)),
    ("C3 Instance", ("CPU", "RAM"), (0.033982, 0.004555), (0.003086, 0.000413)),
    ("G2 Instance", ("CPU", "RAM"), (0.024988, 0.002927), (0.009995, 0.001171)),
    ("A2 Instance", ("CPU", "RAM"), (0.031611, 0.004237), (0.012644, 0.001695)),
    ("A3 Instance", ("CPU", "RAM"), (0.029358, 0.002545), (0.011743, 0.001018)),
)
_ACCELERATORS: Final = (
    # description up to the place, resource group, USD per hour, Spot
    ("Nvidia Tesla T4 GPU", "GPU", 0.35, 0.14),
    ("Nvidia Tesla V100 GPU", "GPU", 2.48, 0.992),
    ("Nvidia Tesla A100 GPU", "GPU", 2.933908, 1.173563),
    ("Nvidia Tesla A100 80GB GPU", "GPU", 3.9276, 1.57104),
    ("Nvidia L4 GPU", "GPU", 0.56004, 0.224016),
    ("Nvidia H100 80GB GPU", "GPU", 9.79655, 3.91862),
    ("TpuV5e", "TPU", 1.2, 0.54),
    ("TpuV5p", "TPU", 4.2, 1.68),
    ("TpuV6e", "TPU", 2.7, 1.215),
)
_DISKS: Final = (
    # description, resource group, tiers: from which amount of GiB on, USD per GiB and month
    ("Storage PD Capacity", "PDStandard", ((0, 0.0), (30, 0.04))),  # 30 GiB a month are free
    ("Balanced PD Capacity", "SSD", ((0, 0.1),)),
    ("SSD backed PD Capacity", "SSD", ((0, 0.17),)),
    ("Regional Balanced PD Capacity", "SSD", ((0, 0.2),)),
    ("SSD backed Local Storage", "LocalSSD", ((0, 0.08),)),
)


def skus(service: str) -> tuple[Json, ...]:
    """Return the SKUs of a service; none for a service that the emulator does not know."""
    tables = {COMPUTE: _compute, TPU: _tpu, STORAGE: _storage}
    return tuple(tables[service]()) if service in tables else ()


def _compute() -> Iterator[Json]:
    """Yield the SKUs of Compute Engine. Those that jobs do not use have other, invented prices."""
    for place, regions in PLACES.items():
        factor = 1.0 if place == "Americas" else _EUROPE
        for name, groups, on_demand, spot in _SERIES:
            for part, group, price, spot_price in zip(
                ("Core", "Ram"), groups, on_demand, spot, strict=True
            ):
                unit = "h" if part == "Core" else "GiBy.h"
                end = f"{part} running in {place}"
                yield _sku(f"{name} {end}", group, "OnDemand", unit, regions, price * factor)
                yield _sku(
                    f"Spot Preemptible {name} {end}",
                    group,
                    "Preemptible",
                    unit,
                    regions,
                    spot_price * factor,
                )
                short = name.removesuffix(" Instance")
                yield _sku(
                    f"{short} Sole Tenancy Instance {end}",
                    group,
                    "OnDemand",
                    unit,
                    regions,
                    price * _SOLE_TENANCY,
                )
                yield _sku(
                    f"{short} Custom Instance {end}",
                    group,
                    "OnDemand",
                    unit,
                    regions,
                    price * _CUSTOM,
                )
                commitment = f"Commitment v1: {short} {part} in {place} for 1 Year"
                yield _sku(commitment, group, "Commit1Yr", unit, regions, price * _COMMITTED)
        for name, group, price, spot_price in _ACCELERATORS:
            attached = f"{name} attached to Spot Preemptible VMs running in {place}"
            yield _sku(
                f"{name} running in {place}", group, "OnDemand", "h", regions, price * factor
            )
            yield _sku(attached, group, "Preemptible", "h", regions, spot_price * factor)
            reserved = f"{name} attached to DWS Defined Duration VMs running in {place}"
            yield _sku(reserved, group, "OnDemand", "h", regions, price * _DEFINED_DURATION)
        for name, group, tiers in _DISKS:
            where = name if place == "Americas" else f"{name} in {place}"
            yield _tiered(where, ("Storage", group, "OnDemand"), "GiBy.mo", regions, tiers)
    attached = "SSD backed Local Storage attached to Spot Preemptible VMs"
    yield _tiered(
        attached,
        ("Storage", "LocalSSD", "Preemptible"),
        "GiBy.mo",
        PLACES["Americas"],
        ((0, 0.032),),
    )
    yield _sku(
        "Network Internet Egress from Americas to Americas",
        "PremiumInternetEgress",
        "OnDemand",
        "GiBy",
        regions=(),
        price=0.12,
    )


def _storage() -> Iterator[Json]:
    """Yield the SKUs of Cloud Storage: transfers between regions."""
    for words in (
        "Inter Region within Northern America",
        "Inter Region within Europe",
        "Multi-region within Europe",
    ):
        description = f"Network Data Transfer GCP {words}"
        yield _sku(
            description,
            "InterregionEgress",
            "OnDemand",
            "GiBy",
            ("global",),
            price=0.02,
            service=STORAGE,
        )


def _tpu() -> Iterator[Json]:
    """Yield the SKUs of Cloud TPU: chips that are older than v5e."""
    yield _sku(
        "Tpu-v2 accelerator running in the Americas",
        "TPU",
        "OnDemand",
        "h",
        PLACES["Americas"],
        price=4.5,
        service=TPU,
    )
    yield _sku(
        "Tpu-v2 Pod running in Netherlands",
        "TPU",
        "OnDemand",
        "h",
        PLACES["Netherlands"],
        price=26.4,
        service=TPU,
    )


def _sku(
    description: str,
    group: str,
    usage: str,
    unit: str,
    regions: tuple[str, ...],
    price: float,
    service: str = COMPUTE,
) -> Json:
    """Return a SKU with one price, in USD per unit."""
    family = "Network" if unit == "GiBy" else "Compute"
    return _tiered(description, (family, group, usage), unit, regions, ((0, price),), service)


def _tiered(
    description: str,
    category: tuple[str, str, str],
    unit: str,
    regions: tuple[str, ...],
    tiers: tuple[tuple[float, float], ...],
    service: str = COMPUTE,
) -> Json:
    """Return a SKU whose price depends on the amount.

    `category`: resource family, resource group and usage type. `tiers`: from which amount on, USD
    per unit.
    """
    family, group, usage = category
    digest = hashlib.sha256(f"{description} {regions}".encode()).hexdigest().upper()
    sku_id = f"{digest[:4]}-{digest[4:8]}-{digest[8:12]}"
    return {
        "name": f"services/{service}/skus/{sku_id}",
        "skuId": sku_id,
        "description": description,
        "category": {
            "serviceDisplayName": {COMPUTE: "Compute Engine", TPU: "Cloud TPU"}.get(
                service, "Cloud Storage"
            ),
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [
                        {"startUsageAmount": start, "unitPrice": _money(price)}
                        for start, price in tiers
                    ],
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-01T00:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
    }


def _money(price: float) -> Json:
    """Return an amount in USD as google.type.Money: whole units and billionths."""
    units, nanos = divmod(round(price * NANOS), NANOS)
    return {"currencyCode": "USD", "units": str(units), "nanos": nanos}
