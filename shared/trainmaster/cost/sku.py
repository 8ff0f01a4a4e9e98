"""A SKU of Cloud Billing's catalogue, and its list price. Amounts are exact decimals."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

NANO: Final = Decimal(10) ** -9


@dataclass(frozen=True, slots=True)
class Tier:
    """A unit price from some amount of usage on."""

    start: Decimal
    """Usage per month of the whole billing account, in the SKU's unit."""
    price: Decimal


@dataclass(frozen=True, slots=True)
class Sku:
    """One line of the catalogue, with the price that is effective now."""

    sku_id: str
    """Id of the SKU, such as `2E27-4F75-95CD`."""
    description: str
    """Text that identifies the resource (`sku_resources`)."""
    family: str
    """`Compute`, `Storage` and others."""
    group: str
    """Resource group: `CPU`, `RAM`, `GPU`, `TPU`, `N1Standard`, `SSD` and others."""
    usage_type: str
    """`OnDemand`, `Preemptible`, `Commit1Yr` and others."""
    regions: tuple[str, ...]
    unit: str
    """`h`: hour; `GiBy.h`: GiB hour; `GiBy.mo`: GiB month."""
    currency: str
    """ISO 4217 code."""
    tiers: tuple[Tier, ...]
    """In the order of their starts."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why there is no price. Completes `price not known: …`."""

    reason: str


def amount(units: int, nanos: int) -> Decimal:
    """Return an amount of google.type.Money: `units` whole, `nanos` billionths, both of one sign.

    Raises ValueError if the signs differ or `nanos` is out of range.
    """
    if abs(nanos) >= 10**9 or units * nanos < 0:
        raise ValueError(f"{units} units and {nanos} nanos are not an amount of money")
    return Decimal(units) + nanos * NANO


def list_price(sku: Sku) -> Decimal | Unknown:
    """Return the price of one unit, without the free usage that an account may have.

    A price that depends on the usage of the whole account is unknown: Trainmaster sees one project.
    """
    first_charged = next((index for index, tier in enumerate(sku.tiers) if tier.price), None)
    if first_charged is None:
        return Unknown(f"SKU {sku.sku_id} ({sku.description}) has no price above 0")
    prices = {tier.price for tier in sku.tiers[first_charged:]}
    if len(prices) > 1:
        return Unknown(
            f"the price of SKU {sku.sku_id} ({sku.description}) depends on the account's usage"
        )
    return prices.pop()
