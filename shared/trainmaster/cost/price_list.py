"""The price list of an installation: the prices of what jobs use, as one JSON file.

`trainmaster prices update` writes it to `gs://BUCKET/prices/v1.json`. Readers ignore unknown
fields; a change that they could not ignore gets another number in the name, so that two releases
can work side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from trainmaster.core.model.purchase import Pricing
from trainmaster.cost.sku import Sku, Unknown, list_price
from trainmaster.cost.sku_resources import Resource, resource_of
from trainmaster.errors import PermanentError

VERSION: Final = 1
OBJECT_NAME: Final = f"prices/v{VERSION}.json"
BYTES_MAX: Final = 8 << 20
"""Largest price list that is read. One with all regions has about 0.3 MiB."""
TOO_OLD_DAYS: Final = 90
"""Age from which readers ask for an update. List prices change a few times a year."""

Name = Annotated[str, Field(min_length=1, max_length=100)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PriceEntry(_Model):
    """The price of one resource in some regions. `amount` and `reason` exclude each other."""

    resource: Name
    unit: Name
    pricing: Pricing
    regions: tuple[Name, ...]
    sku: str = ""
    amount: Annotated[Decimal, Field(gt=0, max_digits=20, decimal_places=12)] | None = None
    """Price of one unit; None: not known."""
    reason: str = ""
    """Why the price is not known."""


class PriceFile(_Model):
    """The JSON file of a price list."""

    version: Literal[1]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    fetched_at: AwareDatetime
    source: str = ""
    prices: tuple[PriceEntry, ...]


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices by resource, region and pricing. All amounts have one currency."""

    currency: str
    fetched_at: datetime
    prices: Mapping[tuple[str, str, Pricing], Decimal | Unknown]
    """(name of the resource, region, pricing) → price of one unit."""

    def price(self, resource: Resource, region: str, pricing: Pricing) -> Decimal | Unknown:
        """Return the price of one unit of the resource; Unknown says why there is none."""
        missing = Unknown(f"the price list has no {pricing} price of {resource.name} in {region}")
        return self.prices.get((resource.name, region, pricing), missing)

    def is_old(self, now: datetime) -> bool:
        """Whether the list should be updated."""
        return (now - self.fetched_at).days >= TOO_OLD_DAYS


def make_price_file(skus: Iterable[Sku], fetched_at: datetime, source: str = "") -> PriceFile:
    """Return the prices of the resources that jobs use.

    Raises PermanentError if there are none, or several currencies.

    Two SKUs with different prices for one resource in one region leave it without a price.
    """
    matches: list[tuple[Sku, Resource, Pricing]] = []
    for sku in sorted(skus, key=lambda sku: sku.sku_id):
        match = resource_of(sku)
        if match is not None:
            matches.append((sku, *match))
    currencies = {sku.currency for sku, _, _ in matches}
    if not currencies:
        raise PermanentError(
            "the catalogue has none of the prices that jobs need: it may have changed its"
            " descriptions"
        )
    if len(currencies) > 1:
        listed = ", ".join(sorted(currencies))
        raise PermanentError(f"the catalogue has prices in several currencies: {listed}")
    seen: dict[tuple[Resource, str, Pricing], Decimal | Unknown] = {}
    entries: dict[tuple[str, Resource, Pricing, Decimal | Unknown], list[str]] = {}
    for sku, resource, pricing in matches:
        price = list_price(sku)
        for region in sku.regions:
            key = (resource, region, pricing)
            if seen.get(key) == price:
                continue
            price_here = price
            if key in seen:
                price_here = Unknown(f"several SKUs price {resource.name}; one is {sku.sku_id}")
            seen[key] = price_here
            entries.setdefault((sku.sku_id, resource, pricing, price_here), []).append(region)
    return PriceFile(
        version=VERSION,
        currency=currencies.pop(),
        fetched_at=fetched_at,
        source=source,
        prices=tuple(
            PriceEntry(
                resource=resource.name,
                unit=resource.unit,
                pricing=pricing,
                regions=tuple(sorted(regions)),
                sku=sku_id,
                amount=None if isinstance(price, Unknown) else price,
                reason=price.reason if isinstance(price, Unknown) else "",
            )
            for (sku_id, resource, pricing, price), regions in entries.items()
        ),
    )


def write_price_list(file: PriceFile) -> bytes:
    """Return the content of the JSON file, without fields that have their defaults."""
    return file.model_dump_json(indent=1, exclude_defaults=True).encode()


def read_price_list(data: bytes) -> PriceList:
    """Return the prices of a file. Raises PermanentError with the wrong fields."""
    try:
        file = PriceFile.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "file"
        raise PermanentError(
            f"the price list is invalid: {field}: {first['msg']}. Write it again: trainmaster"
            " prices update"
        ) from None
    prices: dict[tuple[str, str, Pricing], Decimal | Unknown] = {}
    for entry in file.prices:
        price: Decimal | Unknown = Unknown(entry.reason or "the price list has no amount")
        if entry.amount is not None:
            price = entry.amount
        for region in entry.regions:
            key = (entry.resource, region, entry.pricing)
            if prices.get(key, price) == price:
                prices[key] = price
            else:
                prices[key] = Unknown(f"several SKUs price {entry.resource} in {region}")
    return PriceList(file.currency, file.fetched_at, prices)
