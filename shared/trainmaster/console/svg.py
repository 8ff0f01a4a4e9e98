"""The timeline as shapes of an SVG image.

Positions are in its units; colours are classes of the style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import Final

from trainmaster.console.time_scale import Gap, TimeScale, time_scale
from trainmaster.console.timeline import Bar, Lane, Mark, MarkKind, Timeline
from trainmaster.presentation.durations import DAY_S, HOUR_S, MINUTE_S, duration_words

WIDTH: Final = 1000.0
"""Width of the whole image."""
LABEL_WIDTH: Final = 110.0
"""Width of the names of lanes, to the left of them."""
RIGHT_MARGIN: Final = 12.0
_BOTTOM_MARGIN: Final = 4.0
LANE_HEIGHT: Final = 26.0
AXIS_HEIGHT: Final = 24.0
BAR_WIDTH_MIN: Final = 1.5
"""Width of bars that would be too narrow to be seen."""
TICKS: Final = 4
"""Labels of a time axis after its first one, at most."""
TICK_DISTANCE_MIN: Final = 200.0
"""Units between two labels of a time axis: twice the width of a label on a phone."""
UNLABELLED_MAX: Final = 2 / 3 * WIDTH
"""Width of a part of a time axis that may have no label."""
STEPS_MAX: Final = 1_000
"""A round length is tried for a time axis if it fits into the time at most this often: a job may
run for weeks.
"""
_LABEL_HALF: Final = TICK_DISTANCE_MIN / 4
"""Half the width of a label on a phone."""
_ROUND_MINUTES: Final = (1, 2, 5, 10, 15, 30)
_ROUND_HOURS: Final = (1, 2, 3, 6, 12)
ROUND_S: Final = (
    *_ROUND_MINUTES,  # the same numbers of seconds
    *(MINUTE_S * minutes for minutes in _ROUND_MINUTES),
    *(HOUR_S * hours for hours in _ROUND_HOURS),
)
"""Distances of the labels, in seconds; longer ones are whole days."""
_ZERO_UNIT: Final = re.compile(r"(?<=\D) 0 \w+$|\.0(?= s$)")
"""The zero at the end of `5 min 0 s`, or in `5.0 s`, which labels leave out."""

MARK_SHAPES: Final = {
    MarkKind.EXIT: "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6Z",
    MarkKind.OUT_OF_MEMORY: "M-6-6H6V6H-6Z",
    MarkKind.PREEMPTION: "M-7-5H7L0 7Z",
    MarkKind.MAINTENANCE: "M0-7L7 0L0 7L-7 0Z",
    MarkKind.VM_LOST: "M-6-4L-4-6L0-2L4-6L6-4L2 0L6 4L4 6L0 2L-4 6L-6 4L-2 0Z",
    MarkKind.CAPACITY: "M0-6A6 6 0 1 1 0 6A6 6 0 1 1 0-6ZM-4-1.2V1.2H4V-1.2Z",
    MarkKind.RERUN: "M-6-7L6 0L-6 7Z",
    MarkKind.DEADLINE: "M-6-7H6L1 0L6 7H-6L-1 0Z",
    MarkKind.CANCELLED: "M-6-6H6V6H-6ZM-3-3V3H3V-3Z",
    MarkKind.FAILED: "M-2-7H2V2H-2ZM-2 4H2V7H-2Z",
    MarkKind.SUCCEEDED: "M-7 0L-4-3L-1 0L5-6L7-4L-1 5Z",
}
"""Path of each kind of mark around the origin: kinds differ in shape, not only in colour."""


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """A span of a lane, with its position in the image."""

    x: float
    width: float
    kind: str
    title: str
    """The span in words."""


@dataclass(frozen=True, slots=True)
class DrawnMark:
    """A mark of a lane, with its position and shape."""

    x: float
    kind: str
    path: str
    title: str
    key: str
    """Key of the ledger entry that the mark leads to."""


@dataclass(frozen=True, slots=True)
class DrawnLane:
    """A lane with its spans and marks."""

    name: str
    y: float
    words: str
    """The lane in a sentence, for screen readers."""
    bars: tuple[DrawnBar, ...]
    marks: tuple[DrawnMark, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the time axis."""

    x: float
    label: str
    anchor: str
    """Value of `text-anchor`."""


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """The whole image."""

    width: float
    height: float
    lanes: tuple[DrawnLane, ...]
    attempts: tuple[tuple[float, int], ...]
    """Position and number of each attempt but the first."""
    gaps: tuple[Gap, ...]
    ticks: tuple[Tick, ...]
    legend: tuple[str, ...]
    """Phases and states that occur, in the order of their first occurrence."""
    symbols: tuple[tuple[str, str], ...]
    """Kinds of marks that occur, with their paths."""


def draw(timeline: Timeline, *, shortens_gaps: bool = True) -> DrawnTimeline:
    """Return the shapes of a timeline."""
    width = WIDTH - LABEL_WIDTH - RIGHT_MARGIN
    scale = time_scale(timeline, width, LABEL_WIDTH, shortens_gaps=shortens_gaps)
    lanes = tuple(
        _lane(lane, AXIS_HEIGHT + index * LANE_HEIGHT, scale, timeline.end)
        for index, lane in enumerate(timeline.lanes)
    )
    attempts = tuple(
        (round(scale.x(at), 1), number) for number, at in enumerate(timeline.attempts, start=2)
    )
    ticks = time_ticks(timeline.start, timeline.end, scale.x)
    kinds = dict.fromkeys(mark.kind for lane in timeline.lanes for mark in lane.marks)
    replica_lanes = lanes[1:] or lanes  # a tuning job has no lane but its own
    return DrawnTimeline(
        width=WIDTH,
        height=AXIS_HEIGHT + len(lanes) * LANE_HEIGHT + _BOTTOM_MARGIN,
        lanes=lanes,
        attempts=attempts,
        gaps=scale.gaps,
        ticks=tuple(ticks),
        legend=tuple(dict.fromkeys(bar.kind for lane in replica_lanes for bar in lane.bars)),
        symbols=tuple((kind.value, MARK_SHAPES[kind]) for kind in kinds),
    )


def _lane(lane: Lane, y: float, scale: TimeScale, end: datetime) -> DrawnLane:
    # Spans without a length are left out, unless nothing would be left.
    bars = tuple(
        _bar(bar, scale, end)
        for bar in lane.bars
        if (bar.end or end) > bar.start or len(lane.bars) == 1
    )
    marks = tuple(_mark(mark, scale) for mark in lane.marks)
    last = f" Now {lane.bars[-1].label}." if lane.bars and lane.bars[-1].end is None else ""
    incidents = f"{len(marks)} mark{'' if len(marks) == 1 else 's'}" if marks else "no incidents"
    return DrawnLane(
        lane.name, y, f"{lane.name}: {len(bars)} spans, {incidents}.{last}", bars, marks
    )


def _bar(bar: Bar, scale: TimeScale, end: datetime) -> DrawnBar:
    left = round(scale.x(bar.start), 1)
    width = round(scale.x(bar.end or end) - left, 1)
    return DrawnBar(left, max(width, BAR_WIDTH_MIN), bar.label, bar.title)


def _mark(mark: Mark, scale: TimeScale) -> DrawnMark:
    rule = f" (rule {mark.rule})" if mark.rule else ""
    title = f"{mark.at:%H:%M:%S} {mark.kind}: {mark.text}{rule}"
    return DrawnMark(
        round(scale.x(mark.at), 1),
        mark.kind.value.replace(" ", "-").lower(),
        MARK_SHAPES[mark.kind],
        title,
        mark.key,
    )


def time_ticks(start: datetime, end: datetime, x_of: Callable[[datetime], float]) -> list[Tick]:
    """Return a tick with the time of the start, and others after round lengths of time since it.

    `x_of`: time → position. Ticks that would be too near to the one before are left out. The
    longest of these lengths is used that leaves no part without a label which is wider than
    `UNLABELLED_MAX`: where a long stretch is drawn shorter, that is a length of the rest.
    """
    length_s = (end - start).total_seconds()
    longest_s = _step_s(length_s)
    ticks: list[Tick] = []
    for step_s in (longest_s, *reversed(ROUND_S)):
        if step_s > longest_s or length_s > STEPS_MAX * step_s:
            continue
        ticks = _ticks_of(step_s, start, end, x_of)
        ends = [*(tick.x for tick in ticks), x_of(end)]
        if max(right - left for left, right in pairwise(ends)) <= UNLABELLED_MAX:
            break
    return ticks


def _ticks_of(
    step_s: float, start: datetime, end: datetime, x_of: Callable[[datetime], float]
) -> list[Tick]:
    """Return the ticks of `time_ticks` at multiples of this length."""
    ticks = [Tick(round(x_of(start), 1), f"{start:%H:%M:%S}", "start")]
    number = 1
    while (at := start + timedelta(seconds=number * step_s)) <= end:
        x = round(x_of(at), 1)
        if x - ticks[-1].x >= TICK_DISTANCE_MIN:
            # A centred label near the end would reach beyond the image.
            anchor = "end" if x_of(end) - x < _LABEL_HALF else "middle"
            ticks.append(Tick(x, f"+{_round_words(at - start)}", anchor))
        number += 1
    return ticks


def _step_s(length_s: float) -> float:
    """Return a round number of seconds of which the length has at most `TICKS`."""
    step_s = next((step_s for step_s in ROUND_S if length_s <= TICKS * step_s), None)
    return step_s or DAY_S * ceil(length_s / (TICKS * DAY_S))


def _round_words(length: timedelta) -> str:
    """Return `5 min` or `2 h`: without a smaller unit that is zero."""
    return _ZERO_UNIT.sub("", duration_words(length))
