"""Types of the settings whose text has a form of its own, such as `NAME=VALUE,NAME=VALUE`.

Each function parses the text of an environment variable, and leaves any other value to pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Final

from pydantic import BeforeValidator

from trainmaster.core.intake.named_resources import ResourceKind
from trainmaster.core.model.label_rules import LABEL_VALUE
from trainmaster.core.model.money import Money, read_money
from trainmaster.core.rules.admission_queue import RESOURCES

_ACCOUNT_NETWORK: Final = "finance@my-project.iam.gserviceaccount.com=trainmaster-finance"
REGION_NAME: Final = re.compile(r"[a-z]+-[a-z]+[0-9]+")
_IMAGE: Final = re.compile(
    r"projects/[^/]+/global/images/(family/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
)


def _text(parse: Callable[[str], object]) -> BeforeValidator:
    """Return the metadata of a type whose text `parse` reads."""

    def validate(value: object) -> object:
        return parse(value) if isinstance(value, str) else value

    return BeforeValidator(validate)


def _items(text: str) -> Iterator[str]:
    """Yield the items between commas, without empty ones."""
    return filter(None, (item.strip() for item in text.split(",")))


def _parse_resources(text: str) -> tuple[str, ...]:
    """Parse `KIND=NAME,KIND=NAME`."""
    entries = tuple(_items(text))
    for entry in entries:
        kind, _, name = entry.partition("=")
        has_inner_star = "*" in name[:-1]  # at the end, it stands for any rest
        if kind not in set(ResourceKind) or not name or has_inner_star:
            raise ValueError(f"{entry!r} is not KIND=NAME; the kinds are {', '.join(ResourceKind)}")
    return entries


def _pairs(text: str, is_legal: Callable[[str, str], object], form: str) -> dict[str, str]:
    """Parse `NAME=VALUE,NAME=VALUE`.

    Raises ValueError for a pair that is not legal, or whose name occurs twice.
    """
    pairs: dict[str, str] = {}
    for item in _items(text):
        name, _, value = item.partition("=")
        if not is_legal(name, value) or name in pairs:
            raise ValueError(f"{item!r} is not {form}")
        pairs[name] = value
    return pairs


def _parse_account_networks(text: str) -> dict[str, str]:
    """Parse `ACCOUNT=NETWORK,ACCOUNT=NETWORK`."""
    form = f"ACCOUNT=NETWORK, once each, such as {_ACCOUNT_NETWORK}"
    return _pairs(text, lambda account, network: "@" in account and network, form)


def _parse_regions(text: str) -> tuple[str, ...]:
    """Parse `us-central1,europe-west4`.

    Regions need not be in our table: Google adds some every year.
    """
    regions = tuple(_items(text))
    for region in regions:
        if not REGION_NAME.fullmatch(region):
            raise ValueError(f"{region!r} is not a region, such as us-central1")
    return regions


def _parse_images(text: str) -> dict[str, str]:
    """Parse `debian-12=projects/p/global/images/family/mine,…`."""
    form = "FAMILY=projects/P/global/images/[family/]NAME, once each"
    return _pairs(text, lambda family, image: family and _IMAGE.fullmatch(image), form)


def _parse_limits(text: str) -> dict[str, int]:
    """Parse `vcpus=450,gpus=8,team:vision=2`.

    A resource has a limit. A team, which is a value of the label `team`, has no limit but the
    weight of its jobs in the queue.
    """
    form = "RESOURCE=NUMBER, once each, such as vcpus=450"
    limits = _pairs(text, lambda name, count: name and count.isdecimal(), form)
    for name, count in limits.items():
        if name in RESOURCES:
            continue
        prefix, _, team = name.partition(":")
        if prefix != "team":
            raise ValueError(
                f"{name!r} is not a resource; known are {', '.join(RESOURCES)} and team:NAME"
            )
        is_weight = int(count) > 0 and team and LABEL_VALUE.fullmatch(team)
        if not is_weight:
            rule = "a weight of at least 1 of a label's value, such as team:vision=2"
            raise ValueError(f"'{name}={count}' is not {rule}")
    return {name: int(count) for name, count in limits.items()}


def _parse_price(text: str) -> Money | None:
    """Parse `0.49 USD`. None: no price is set."""
    return read_money(text) if text else None


AccountNetworks = Annotated[dict[str, str], _text(_parse_account_networks)]
AllowedResources = Annotated[tuple[str, ...], _text(_parse_resources)]
BootImages = Annotated[dict[str, str], _text(_parse_images)]
Limits = Annotated[dict[str, int], _text(_parse_limits)]
Regions = Annotated[tuple[str, ...], _text(_parse_regions)]
UnitPrice = Annotated[Money | None, _text(_parse_price)]
