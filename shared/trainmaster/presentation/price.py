"""An amount of money in a currency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TEXT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ([A-Z]{3})")


@dataclass(frozen=True, slots=True)
class Price:
    """An amount of money."""

    amount: float
    currency: str
    """ISO 4217 code."""

    def times(self, number: float) -> Price:
        return Price(round(number * self.amount, 2), self.currency)

    @property
    def words(self) -> str:
        """`0.57 USD`."""
        return f"{self.amount:.2f} {self.currency}"


def read_price(text: str) -> Price:
    """Parse `0.49 USD`. Raises ValueError with an example."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} must be AMOUNT CURRENCY, such as 0.49 USD")
    return Price(float(match[1]), match[2])
