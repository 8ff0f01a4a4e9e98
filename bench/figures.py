"""One measured figure, and the floor that was measured with it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, its floor in the same run, and the limit of their ratio."""

    value: float
    unit: str
    floor: float | None = None
    """The same calls to Google's clients without any code of ours, in the same unit. None: there are no such calls."""
    ratio_max: float | None = None
    ratio_min: float | None = None
    value_max: float | None = None
    """Limit of the value itself, in its unit."""

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def is_within_limits(self) -> bool:
        ratio = self.ratio
        if ratio is not None and self.ratio_max is not None and ratio > self.ratio_max:
            return False
        if ratio is not None and self.ratio_min is not None and ratio < self.ratio_min:
            return False
        return self.value_max is None or self.value <= self.value_max

    @property
    def limit(self) -> str:
        """The limit in words, or an empty string."""
        if self.ratio_max is not None:
            return f"at most {self.ratio_max:g} x the floor"
        if self.ratio_min is not None:
            return f"at least {self.ratio_min:g} x the floor"
        return f"at most {self.value_max:g} {self.unit}" if self.value_max is not None else ""


Figures = dict[str, Figure]
"""Name → figure. A name ends in the size of the measurement, if it has one: `loss N=100`."""


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000
