"""The horizontal axis of a chart: times, or the steps of a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from trainmaster.console.svg import TICKS, Tick, time_ticks

WIDTH: Final = 1000.0
"""Width of the image, in its units."""
LEFT: Final = 70.0
"""Width to the left of the chart, for the labels of its vertical axis."""
RIGHT: Final = 12.0
"""Width to the right of the chart."""
GAP_S: Final = 360.0
"""A line is interrupted where values are further apart, besides the length of a period: agents
report within 300 s.
"""

At = TypeVar("At", datetime, int)
"""A position on an axis: a time, or a step."""


class Axis(ABC, Generic[At]):
    """Maps positions to those of the image."""

    @abstractmethod
    def x(self, at: At) -> float:
        """Return where a value is drawn. Values outside of the axis are at its ends."""

    @abstractmethod
    def ticks(self) -> Sequence[Tick]:
        """Return the labels of the axis."""

    @abstractmethod
    def is_gap(self, before: At, after: At) -> bool:
        """Return whether a line is interrupted between two values that follow each other."""


@dataclass(frozen=True, slots=True)
class TimeAxis(Axis[datetime]):
    """The times from `start` to `end`."""

    start: datetime
    end: datetime
    period_s: int
    """Length of the periods whose means are drawn."""

    def x(self, at: datetime) -> float:
        return chart_x(at, self.start, self.end)

    def ticks(self) -> Sequence[Tick]:
        return time_ticks(self.start, self.end, self.x)

    def is_gap(self, before: datetime, after: datetime) -> bool:
        return after - before > timedelta(seconds=GAP_S + self.period_s)


@dataclass(frozen=True, slots=True)
class StepAxis(Axis[int]):
    """The steps from `first` to `last`. Programs report some of them, so lines have no gaps."""

    first: int
    last: int

    def x(self, at: int) -> float:
        return _x((at - self.first) / max(self.last - self.first, 1))

    def ticks(self) -> Sequence[Tick]:
        steps = [self.first + (self.last - self.first) * n // TICKS for n in range(TICKS + 1)]
        anchors = ["start", *["middle"] * (TICKS - 1), "end"]
        return [
            Tick(self.x(step), f"{step:,}", anchor)
            for step, anchor in zip(steps, anchors, strict=True)
        ]

    def is_gap(self, before: int, after: int) -> bool:  # noqa: ARG002 - as of the other axis
        return False


def chart_x(at: datetime, start: datetime, end: datetime) -> float:
    """Return the position of a time in the charts from `start` to `end`.

    Times outside of them are at their edges.
    """
    return _x((at - start).total_seconds() / max((end - start).total_seconds(), 1.0))


def _x(share: float) -> float:
    """Return the position of a share of the axis, from 0 to 1; outside of that, the nearest end."""
    return round(LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 1)
