"""Kubernetes' resource quantities: `500m`, `4`, `16Gi`. Source: its API conventions, "Quantities"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

GIB: Final = 1 << 30

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:([eE][0-9]{1,2})|([A-Za-z]{0,2}))")
_DECIMAL: Final = {"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(10**3)}
_SUFFIXES: Final = {
    **_DECIMAL,
    **{suffix: Decimal(10 ** (3 * power)) for power, suffix in enumerate("MGTP", start=2)},
    **{f"{suffix}i": Decimal(1 << (10 * power)) for power, suffix in enumerate("KMGTP", start=1)},
}


def parse_quantity(value: object) -> Decimal | None:
    """Return the number; None if the text is not a quantity."""
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        return None
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(f"{number}{exponent}")
    return Decimal(number) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None
