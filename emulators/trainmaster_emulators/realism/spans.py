"""Durations that differ each time."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Span:
    """A duration between two bounds, in seconds."""

    low_s: float
    high_s: float

    def draw(self, random: Random) -> float:
        return random.uniform(self.low_s, self.high_s)

    def scaled(self, factor: float) -> Span:
        return Span(self.low_s * factor, self.high_s * factor)
