"""One measured figure of the control plane."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and its limit, in the same unit."""

    value: float
    unit: str
    value_max: float | None = None

    @property
    def is_within_limits(self) -> bool:
        return self.value_max is None or self.value <= self.value_max

    @property
    def limit(self) -> str:
        """The limit in words, or an empty string."""
        return f"at most {self.value_max:g} {self.unit}" if self.value_max is not None else ""


Figures = dict[str, Figure]
"""Name → figure. A name ends in the size of the measurement, if it has one: `loss N=100`."""
