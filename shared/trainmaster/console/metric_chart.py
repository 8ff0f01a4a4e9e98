"""Charts of a job's metrics as shapes of SVG images, each with a table of the same values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Generic

from trainmaster.console.chart_axis import At, Axis
from trainmaster.console.svg import Tick
from trainmaster.presentation.utilization import bytes_words, share_words

HEIGHT: Final = 170.0
"""Height of the image, in its units."""
TOP: Final = 10.0
"""Height above the chart."""
BOTTOM: Final = 24.0
"""Height below the chart, for the labels of its axis."""
STYLES: Final = 6
"""Number of line styles in the style sheet; they differ in colour and in dashes."""
GROUPED_MIN: Final = 1e4
"""Numbers from here to `GROUPED_MAX` are shown as 26,554; others have four digits."""
GROUPED_MAX: Final = 1e12


class Scale(Enum):
    """The kind of values in a chart, which decides where its axis ends."""

    SHARE = "share"
    """From 0 to 1."""
    RATE = "rate"
    """Bytes per second, from 0."""
    NUMBER = "number"
    """Any number, from the smallest to the largest value."""

    def words(self, value: float) -> str:
        """Return a value as labels and tables show it."""
        match self:
            case Scale.SHARE:
                return share_words(value)
            case Scale.RATE:
                return bytes_words(value)
            case Scale.NUMBER:
                is_grouped = GROUPED_MIN <= abs(value) < GROUPED_MAX
                return f"{value:,.0f}" if is_grouped else f"{value:.4g}"

    def ends(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the values at the lower and the upper end of the axis."""
        highest = max(values, default=0.0)
        match self:
            case Scale.SHARE:
                return 0.0, 1.0
            case Scale.RATE:
                return 0.0, _ceiling(highest)
            case Scale.NUMBER:
                return _widened(min(values, default=0.0), highest)


def _widened(lowest: float, highest: float) -> tuple[float, float]:
    """Return the ends of an axis that has a length, also for a value that does not change."""
    if lowest / 2 < highest / 2:  # `draw_chart` computes with halves
        return lowest, highest
    margin = abs(lowest) / 2 or 1.0  # a loss is not drawn on an axis of negative numbers
    return max(lowest - margin, -sys.float_info.max), min(highest + margin, sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Line(Generic[At]):
    """Values of one role, replica or GPU, by their positions on the axis."""

    name: str
    mean: Mapping[At, float]
    low: Mapping[At, float]
    """Smallest value of the role's machines at each time; empty: no band."""
    high: Mapping[At, float]


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line of a chart as shapes."""

    name: str
    style: int
    """Number of the line style, from 0."""
    paths: tuple[str, ...]
    """Points of each uninterrupted piece."""
    bands: tuple[str, ...]
    """Outlines of the areas between the smallest and the largest values."""
    dots: tuple[tuple[float, float], ...]
    """Positions of single values, which make no line."""


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart as shapes, and its table."""

    name: str
    words: str
    """The chart in a sentence, for screen readers."""
    lines: tuple[DrawnLine, ...]
    y_ticks: tuple[tuple[float, str], ...]
    """Position and label."""
    x_ticks: tuple[Tick, ...]
    columns: tuple[str, ...]
    """Headings of the table."""
    rows: tuple[tuple[datetime | int, tuple[str, ...]], ...]
    """Position on the axis and the value of each line, the last first."""


def draw_chart(name: str, lines: Sequence[Line[At]], axis: Axis[At], scale: Scale) -> DrawnChart:
    """Return the shapes of a chart, with the lines in their order."""
    low, top = scale.ends(_highest_values(lines))
    half = low / 2 + top / 2  # the sum of two large numbers would be infinite

    def y_of(value: float) -> float:
        share = (value / 2 - low / 2) / (top / 2 - low / 2)
        return round(TOP + (1 - min(max(share, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM), 1)

    def draw_line(line: Line[At], style: int) -> DrawnLine:
        paths: list[str] = []
        dots: list[tuple[float, float]] = []
        for piece in _pieces(sorted(line.mean), axis):
            points = [(axis.x(at), y_of(line.mean[at])) for at in piece]
            if len(points) > 1:
                paths.append(_path(points))
            else:
                dots += points
        bands = [
            _band(line, piece, axis.x, y_of)
            for piece in _pieces(sorted(line.low), axis)
            if len(piece) > 1
        ]
        return DrawnLine(line.name, style, tuple(paths), tuple(bands), tuple(dots))

    return DrawnChart(
        name=name,
        words=_sentence(name, lines, scale.words),
        lines=tuple(draw_line(line, index % STYLES) for index, line in enumerate(lines)),
        y_ticks=tuple((y_of(value), scale.words(value)) for value in (low, half, top)),
        x_ticks=tuple(axis.ticks()),
        columns=tuple(line.name for line in lines),
        rows=tuple(_rows(lines, scale.words)),
    )


def _highest_values(lines: Sequence[Line[At]]) -> list[float]:
    """Return the values that the axis must reach: the upper ends of bands, or the means."""
    values: list[float] = []
    for line in lines:
        values += (line.high or line.mean).values()
    return values


def _band(
    line: Line[At],
    piece: Sequence[At],
    x_of: Callable[[At], float],
    y_of: Callable[[float], float],
) -> str:
    """Return the outline of a band: its upper edge forwards, then its lower edge backwards."""
    upper = [(x_of(at), y_of(line.high.get(at, line.low[at]))) for at in piece]
    lower = [(x_of(at), y_of(line.low[at])) for at in reversed(piece)]
    return _path(upper + lower)


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{left},{top}" for left, top in points)


def _pieces(positions: Sequence[At], axis: Axis[At]) -> list[list[At]]:
    """Split positions in their order where the axis has a gap."""
    pieces: list[list[At]] = []
    for at in positions:
        if pieces and not axis.is_gap(pieces[-1][-1], at):
            pieces[-1].append(at)
        else:
            pieces.append([at])
    return pieces


def _ceiling(value: float) -> float:
    """Return the next of 1, 2 or 5 times a power of ten, so that the axis has round labels."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if value <= factor * step:
                return factor * step
        step *= 10


def _rows(
    lines: Sequence[Line[At]], words: Callable[[float], str]
) -> list[tuple[At, tuple[str, ...]]]:
    positions: set[At] = set()
    for line in lines:
        positions.update(line.mean)
    ordered = sorted(positions, reverse=True)
    return [(at, tuple(_cell(line, at, words) for line in lines)) for at in ordered]


def _cell(line: Line[At], at: At, words: Callable[[float], str]) -> str:
    if at not in line.mean:
        return "-"
    mean = words(line.mean[at])
    if at not in line.low or at not in line.high:
        return mean
    return f"{mean} ({words(line.low[at])} to {words(line.high[at])})"


def _sentence(name: str, lines: Sequence[Line[At]], words: Callable[[float], str]) -> str:
    parts = [
        f"{line.name} {words(line.mean[max(line.mean)])} at the end, at most"
        f" {words(max(line.mean.values()))}"
        for line in lines
        if line.mean
    ]
    if not parts:
        return f"{name}: no values."
    return f"{name}: {'; '.join(parts)}. The table below has all values."
