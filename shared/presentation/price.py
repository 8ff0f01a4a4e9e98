"""What something costs: an amount and a currency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WRITTEN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ([A-Z]{3})")


@dataclass(frozen=True, slots=True)
class Price:
    amount: float
    currency: str

    def times(self, number: float) -> Price:
        return Price(round(number * self.amount, 2), self.currency)

    @property
    def words(self) -> str:
        return f"{self.amount:.2f} {self.currency}"


def read_price(text: str) -> Price:
    """Raises ValueError, with an example of right."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not AMOUNT CURRENCY, such as 0.49 USD")
    return Price(float(match[1]), match[2])
