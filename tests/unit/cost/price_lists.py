"""The price list that the emulated catalogue gives, for tests of costs and of pages with prices.

A SKU is an item of Google's price catalogue. The emulator has some of each service that jobs use.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from trainmaster.cost.price_list import (
    PriceFile,
    PriceList,
    make_price_file,
    read_price_list,
    write_price_list,
)
from trainmaster.cost.sku import Sku, Tier, amount
from trainmaster_emulators.billing import catalogue

FETCHED_AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@cache
def emulated_skus() -> tuple[Sku, ...]:
    """Return all items of the emulated catalogue."""
    return tuple(
        _sku(raw)
        for service in (catalogue.COMPUTE, catalogue.TPU, catalogue.STORAGE)
        for raw in catalogue.skus(service)
    )


def price_file() -> PriceFile:
    """Return the price file that the emulated catalogue leads to."""
    return make_price_file(emulated_skus(), FETCHED_AT)


@cache
def price_list() -> PriceList:
    """Return the prices of the emulated catalogue, which were fetched at `FETCHED_AT`."""
    return read_price_list(write_price_list(price_file()))


def _sku(raw: dict[str, Any]) -> Sku:
    expression = raw["pricingInfo"][0]["pricingExpression"]
    tiers = []
    for rate in expression["tieredRates"]:
        price = amount(int(rate["unitPrice"]["units"]), rate["unitPrice"]["nanos"])
        tiers.append(Tier(Decimal(str(rate["startUsageAmount"])), price))
    return Sku(
        sku_id=raw["skuId"],
        description=raw["description"],
        family=raw["category"]["resourceFamily"],
        group=raw["category"]["resourceGroup"],
        usage_type=raw["category"]["usageType"],
        regions=tuple(raw["serviceRegions"]),
        unit=expression["usageUnit"],
        currency="USD",
        tiers=tuple(tiers),
    )
