"""SKUs of the catalogue: amounts, tiers, and which resource each one prices."""

from __future__ import annotations

from decimal import Decimal

import pytest

from trainmaster.core.model.purchase import Pricing
from trainmaster.cost.sku import Sku, Tier, Unknown, amount, list_price
from trainmaster.cost.sku_resources import resource_of


def a_sku(
    description: str = "N1 Predefined Instance Core running in Americas", **fields: object
) -> Sku:
    values: dict[str, object] = {
        "sku_id": "0048-21CE-74C3",
        "description": description,
        "family": "Compute",
        "group": "N1Standard",
        "usage_type": "OnDemand",
        "regions": ("us-central1",),
        "unit": "h",
        "currency": "USD",
        "tiers": (Tier(Decimal(0), Decimal("0.031611")),),
    }
    return Sku(**{**values, **fields})  # type: ignore[arg-type]


def tiers(*pairs: tuple[str, str]) -> tuple[Tier, ...]:
    return tuple(Tier(Decimal(start), Decimal(price)) for start, price in pairs)


@pytest.mark.parametrize(
    ("units", "nanos", "expected"),
    [
        (0, 31_611_000, "0.031611"),
        (9, 796_550_000, "9.79655"),
        (12, 0, "12"),
        (0, 1, "0.000000001"),
        (-1, -5, "-1.000000005"),
    ],
)
def test_amount_is_exact(units: int, nanos: int, expected: str) -> None:
    assert amount(units, nanos) == Decimal(expected)


@pytest.mark.parametrize(("units", "nanos"), [(1, -1), (-1, 1), (0, 10**9)])
def test_amount_with_two_signs_or_too_many_nanos_is_refused(units: int, nanos: int) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        amount(units, nanos)


def test_list_price_of_one_tier_is_its_price() -> None:
    assert list_price(a_sku()) == Decimal("0.031611")


def test_list_price_leaves_free_usage_out() -> None:
    assert list_price(a_sku(tiers=tiers(("0", "0"), ("30", "0.04")))) == Decimal("0.04")


def test_equal_tiers_have_one_price() -> None:
    assert list_price(a_sku(tiers=tiers(("0", "0.04"), ("30", "0.04")))) == Decimal("0.04")


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        (tiers(("0", "0.05"), ("1000", "0.04")), "depends on the account's usage"),
        (tiers(("0", "0")), "no price above 0"),
        ((), "no price above 0"),
    ],
)
def test_price_that_does_not_follow_from_the_sku_is_unknown(
    rates: tuple[Tier, ...], reason: str
) -> None:
    price = list_price(a_sku(tiers=rates))
    assert isinstance(price, Unknown)
    assert reason in price.reason


@pytest.mark.parametrize(
    ("description", "group", "usage", "unit", "name", "pricing"),
    [
        (
            "N1 Predefined Instance Core running in Americas",
            "N1Standard",
            "OnDemand",
            "h",
            "n1 core",
            "on-demand",
        ),
        (
            "N1 Predefined Instance Ram running in Warsaw",
            "N1Standard",
            "OnDemand",
            "GiBy.h",
            "n1 ram",
            "on-demand",
        ),
        (
            "Spot Preemptible N1 Predefined Instance Core running in EMEA",
            "CPU",
            "Preemptible",
            "h",
            "n1 core",
            "spot",
        ),
        (
            "N2D AMD Instance Ram running in EMEA",
            "RAM",
            "OnDemand",
            "GiBy.h",
            "n2d ram",
            "on-demand",
        ),
        (
            "Compute optimized Core running in Americas",
            "CPU",
            "OnDemand",
            "h",
            "c2 core",
            "on-demand",
        ),
        (
            "Nvidia Tesla T4 GPU running in Americas",
            "GPU",
            "OnDemand",
            "h",
            "nvidia-tesla-t4",
            "on-demand",
        ),
        (
            "Nvidia Tesla A100 GPU running in Iowa",
            "GPU",
            "OnDemand",
            "h",
            "nvidia-tesla-a100",
            "on-demand",
        ),
        (
            "Nvidia Tesla A100 80GB GPU running in Iowa",
            "GPU",
            "OnDemand",
            "h",
            "nvidia-a100-80gb",
            "on-demand",
        ),
        (
            "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa",
            "GPU",
            "Preemptible",
            "h",
            "nvidia-l4",
            "spot",
        ),
        (
            "TpuV6e attached to Spot Preemptible VMs running in Columbus",
            "TPU",
            "Preemptible",
            "h",
            "v6e",
            "spot",
        ),
        ("TpuV5e running in Las Vegas", "TPU", "OnDemand", "h", "v5litepod", "on-demand"),
    ],
)
def test_sku_of_a_machine_is_recognized(
    description: str, group: str, usage: str, unit: str, name: str, pricing: str
) -> None:
    found = resource_of(a_sku(description, group=group, usage_type=usage, unit=unit))
    assert found is not None
    resource, how_it_is_bought = found
    assert (resource.name, how_it_is_bought) == (name, Pricing(pricing))


@pytest.mark.parametrize(
    "sku",
    [
        a_sku("Storage PD Capacity", family="Storage", group="PDStandard", unit="GiBy.mo"),
        a_sku("SSD backed PD Capacity in Japan", family="Storage", group="SSD", unit="GiBy.mo"),
        a_sku("SSD backed Local Storage", family="Storage", group="LocalSSD", unit="GiBy.mo"),
        a_sku(
            "Network Data Transfer GCP Inter Region within Europe",
            family="Network",
            group="any",
            unit="GiBy",
        ),
    ],
    ids=lambda sku: sku.description,
)
def test_sku_of_a_disk_or_a_transfer_is_recognized(sku: Sku) -> None:
    assert resource_of(sku) is not None


@pytest.mark.parametrize(
    "sku",
    [
        a_sku("N1 Custom Instance Core running in Americas"),
        a_sku(
            "Network Data Transfer GCP Multi-region within Europe",
            family="Network",
            group="any",
            unit="GiBy",
        ),
        a_sku(
            "Memorystore: Network Data Transfer GCP Inter Region within Europe",
            family="Network",
            unit="GiBy",
        ),
        a_sku("Custom Instance Core running in Americas"),
        a_sku("N1 Sole Tenancy Instance Core running in Americas"),
        a_sku("N1 Predefined Instance Core running in Americas", usage_type="Commit1Yr"),
        a_sku("N1 Predefined Instance Core running in Americas", unit="mo"),
        a_sku("Spot Preemptible N1 Predefined Instance Core running in Americas"),
        a_sku("Commitment v1: N1 Core in Americas for 1 Year", usage_type="Commit1Yr"),
        a_sku("M3 Memory-optimized Instance Core running in Americas", group="CPU"),
        a_sku(
            "Nvidia Tesla T4 GPU attached to DWS Defined Duration VMs running in Americas",
            group="GPU",
        ),
        a_sku("Nvidia Tesla T4 Virtual Workstation GPU running in Americas", group="GPU"),
        a_sku("Capacity Optimized TpuV6e running in Columbus", group="TPU"),
        a_sku("DWS Defined Duration V6e running in Columbus", group="TPU"),
        a_sku("Tpu-v2 accelerator running in the Americas", group="TPU"),
        a_sku("Regional Balanced PD Capacity", family="Storage", group="SSD", unit="GiBy.mo"),
        a_sku("A3Plus Instance Core running in Americas", group="CPU"),
    ],
)
def test_sku_that_differs_in_a_word_is_ignored(sku: Sku) -> None:
    assert resource_of(sku) is None
