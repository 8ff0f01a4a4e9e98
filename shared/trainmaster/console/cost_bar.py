"""Paid machine time as a stacked bar for each attempt.

Positions are in the image's units; colours are classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from trainmaster.core.reporting.goodput import AttemptTime, Goodput
from trainmaster.core.reporting.phases import Phase
from trainmaster.presentation.durations import duration_words

WIDTH: Final = 1000.0
"""Width of the image."""
LABEL_WIDTH: Final = 110.0
"""Width of the numbers of the attempts, to the left of the bars."""
_RIGHT_MARGIN: Final = 8.0
ROW_HEIGHT: Final = 30.0
LOST: Final = "lost work"
MAYBE_LOST: Final = "perhaps lost"
ORDER: Final = (Phase.RUNNING, Phase.SETTING_UP, Phase.RESTARTING, Phase.HELD, Phase.KEPT)
"""The phases of `PAID`, in the order of the bar's parts."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    kind: str
    """The phase, `lost work` or `perhaps lost`."""
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class CostBar:
    """The bar of one attempt."""

    attempt: int
    y: float
    segments: tuple[Segment, ...]
    words: str
    """The whole bar in a sentence, for screen readers."""


@dataclass(frozen=True, slots=True)
class DrawnCost:
    """All bars, and the size of their image."""

    width: float
    height: float
    bars: tuple[CostBar, ...]
    legend: tuple[str, ...]
    """Kinds of segments that occur."""


def draw_cost(goodput: Goodput) -> DrawnCost | None:
    """Return a bar for each attempt with paid time, all on one scale. None: nothing is paid yet."""
    paid = [attempt for attempt in goodput.attempts if attempt.paid_s > 0]
    if not paid:
        return None
    # Units per second of machine time: the longest bar has the whole width.
    scale = (WIDTH - LABEL_WIDTH - _RIGHT_MARGIN) / max(attempt.paid_s for attempt in paid)
    bars = tuple(_bar(attempt, row * ROW_HEIGHT, scale) for row, attempt in enumerate(paid))
    legend = dict.fromkeys(segment.kind for bar in bars for segment in bar.segments)
    return DrawnCost(WIDTH, len(bars) * ROW_HEIGHT, bars, tuple(legend))


def _bar(attempt: AttemptTime, y: float, scale: float) -> CostBar:
    segments: list[Segment] = []
    left = LABEL_WIDTH
    for kind, seconds in _parts(attempt):
        width = seconds * scale
        title = (
            f"{kind}: {duration_words(timedelta(seconds=seconds))} of machine time,"
            f" {seconds / attempt.paid_s:.0%}"
        )
        segments.append(Segment(kind, round(left, 1), round(width, 1), title))
        left += width
    return CostBar(
        attempt.attempt, y, tuple(segments), "; ".join(segment.title for segment in segments)
    )


def _parts(attempt: AttemptTime) -> Iterator[tuple[str, float]]:
    """Yield the parts of the paid time in seconds, which sum to it.

    The lost work is a part of `running`.
    """
    lost = attempt.lost
    for phase in ORDER:
        seconds = attempt.total_s.get(phase, 0.0)
        if phase is Phase.RUNNING:
            seconds = max(seconds - lost.at_most_s, 0.0)
        if seconds > 0:
            yield phase.value, seconds
    if lost.at_least_s > 0:
        yield LOST, lost.at_least_s
    if lost.at_most_s > lost.at_least_s:
        yield MAYBE_LOST, lost.at_most_s - lost.at_least_s
