"""The search space of a tuning job: the parameters, and the values that each may have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ParameterKind(StrEnum):
    """Type of a parameter's values."""

    DOUBLE = "DOUBLE"
    INTEGER = "INTEGER"
    CATEGORICAL = "CATEGORICAL"
    DISCRETE = "DISCRETE"


class Scale(StrEnum):
    """Scale on which values are spread evenly."""

    LINEAR = "LINEAR"
    LOG = "LOG"
    REVERSE_LOG = "REVERSE_LOG"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One dimension of the search space."""

    name: str
    kind: ParameterKind
    low: float = 0.0
    """Lowest value of a DOUBLE or INTEGER parameter."""
    high: float = 0.0
    """Highest value of a DOUBLE or INTEGER parameter, included."""
    choices: tuple[str, ...] = ()
    """Values of a CATEGORICAL or DISCRETE parameter."""
    scale: Scale = Scale.LINEAR

    @property
    def size(self) -> int | None:
        """Number of values; None if infinite."""
        match self.kind:
            case ParameterKind.DOUBLE:
                return 1 if self.low == self.high else None
            case ParameterKind.INTEGER:
                return int(self.high) - int(self.low) + 1
            case _:
                return len(self.choices)

    def value_at(self, index: int) -> str:
        """Return the value at this index, from 0. The parameter must have a `size`."""
        if self.choices:
            return self.choices[index]
        return (
            format_number(self.low)
            if self.kind is ParameterKind.DOUBLE
            else str(int(self.low) + index)
        )

    def typed(self, text: str) -> float | str:
        """Return a value as a number, except for categories."""
        return text if self.kind is ParameterKind.CATEGORICAL else float(text)


_EXACT_MAX: Final = 2**53
"""Below it, a float holds every whole number exactly."""


def format_number(number: float) -> str:
    """Return the number as a program gets it: whole numbers without a point, so that both int() and
    float() accept them.
    """
    return str(int(number)) if number == int(number) and abs(number) < _EXACT_MAX else repr(number)
