"""Amounts of money, exactly: a job with `maxCost` ends when it reaches the amount, not near it.

Limits and costs are decimal fractions. Sums of binary fractions may be above or below an amount
that they are equal to: `0.7 + 0.1 < 0.8`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

CENT: Final = Decimal("0.01")
MICRO: Final = Decimal("0.000001")
"""Smallest part of a unit that is stored."""
ZERO: Final = Decimal(0)
_TEXT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ([A-Z]{3})")


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency."""

    amount: Decimal
    currency: str
    """ISO 4217 code."""

    def __str__(self) -> str:
        """Return `25 USD` or `0.5 USD`."""
        return f"{float(self.amount):g} {self.currency}"

    @property
    def words(self) -> str:
        """`0.57 USD`, with cents."""
        return f"{self.amount:.2f} {self.currency}"

    def times(self, number: float) -> Money:
        """Return the amount times `number`, rounded to cents."""
        return Money((self.amount * Decimal(str(number))).quantize(CENT), self.currency)

    def share(self, parts: int) -> Money:
        """Return one of equal parts, which together are never more than the amount."""
        return Money((self.amount / parts).quantize(MICRO, ROUND_FLOOR), self.currency)


def read_money(text: str) -> Money:
    """Parse `0.49 USD`. Raises ValueError with an example."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} must be AMOUNT CURRENCY, such as 0.49 USD")
    return Money(Decimal(match[1]), match[2])


def rounded_up(amount: Decimal) -> Decimal:
    """Return the amount as it is stored, rounded up: a cost is never shown as less than it is."""
    return amount.quantize(MICRO, ROUND_CEILING)
