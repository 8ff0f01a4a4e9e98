"""The price list that the emulated catalogue gives."""

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
    return tuple(
        _sku(raw)
        for service in (catalogue.COMPUTE, catalogue.TPU, catalogue.STORAGE)
        for raw in catalogue.skus(service)
    )


def price_file() -> PriceFile:
    return make_price_file(emulated_skus(), FETCHED_AT)


@cache
def price_list() -> PriceList:
    return read_price_list(write_price_list(price_file()))


def _sku(raw: dict[str, Any]) -> Sku:
    expression = raw["pricingInfo"][0]["pricingExpression"]
    return Sku(
        raw["skuId"],
        raw["description"],
        raw["category"]["resourceFamily"],
        raw["category"]["resourceGroup"],
        raw["category"]["usageType"],
        tuple(raw["serviceRegions"]),
        expression["usageUnit"],
        "USD",
        tuple(
            Tier(
                Decimal(str(rate["startUsageAmount"])),
                amount(int(rate["unitPrice"]["units"]), rate["unitPrice"]["nanos"]),
            )
            for rate in expression["tieredRates"]
        ),
    )
