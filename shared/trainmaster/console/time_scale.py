"""Times as positions on the timeline, with long stretches without a change drawn shorter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from trainmaster.console.timeline import Timeline
from trainmaster.presentation.durations import duration_words

GAP_SHARE: Final = 0.4
"""Share of the whole time above which a stretch without any change is drawn shorter."""
GAP_DRAWN: Final = 0.1
"""Share of the width that such a stretch gets."""
PLAIN_SHARE_MIN: Final = 0.02
"""Share of the time outside such stretches below which nothing is drawn shorter: a job that simply
ran.
"""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch without any change, which is drawn shorter."""

    start: datetime
    end: datetime
    x: float
    width: float

    @property
    def words(self) -> str:
        return f"{duration_words(self.end - self.start)} without a change, drawn shorter"


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Maps times to positions, piece by piece: long stretches without any change are
    drawn shorter.
    """

    points: tuple[tuple[datetime, float], ...]
    """Times and their positions, in order; linear in between."""
    gaps: tuple[Gap, ...]

    def x(self, at: datetime) -> float:
        """Return the position of a time; that of the nearest end for times outside."""
        for (begin, left), (end, right) in pairwise(self.points):
            if at <= end:
                share = (at - begin) / (end - begin) if end > begin else 0.0
                return left + max(share, 0.0) * (right - left)
        return self.points[-1][1]


def time_scale(
    timeline: Timeline, width: float, left: float = 0.0, *, shortens_gaps: bool = True
) -> TimeScale:
    """Return the scale of a timeline on `width` units, from the position `left` on."""
    moments = sorted(min(max(at, timeline.start), timeline.end) for at in _changes(timeline))
    pieces = list(pairwise(moments))  # nothing changes within a piece
    total = (timeline.end - timeline.start).total_seconds() or 1.0
    is_gap = [
        shortens_gaps and len(pieces) > 1 and (end - begin).total_seconds() > GAP_SHARE * total
        for begin, end in pieces
    ]
    plain_s = sum(
        (end - begin).total_seconds()
        for (begin, end), gap in zip(pieces, is_gap, strict=True)
        if not gap
    )
    if plain_s < PLAIN_SHARE_MIN * total:
        is_gap = [False] * len(pieces)
        plain_s = total
    plain_width = width * (1 - GAP_DRAWN * sum(is_gap))
    position = left
    points = [(timeline.start, position)]
    gaps = []
    for (begin, end), gap in zip(pieces, is_gap, strict=True):
        if gap:
            length = width * GAP_DRAWN
            gaps.append(Gap(begin, end, round(position, 1), round(length, 1)))
        else:
            length = plain_width * (end - begin).total_seconds() / plain_s
        position += length
        points.append((end, position))
    borders = {gap.start for gap in gaps} | {gap.end for gap in gaps}
    return TimeScale(_merged(points, borders), tuple(gaps))


def _changes(timeline: Timeline) -> set[datetime]:
    """Return the ends of the timeline, the ends of all bars, and the times of all marks."""
    changes = {timeline.start, timeline.end}
    for lane in timeline.lanes:
        changes.update(bar.start for bar in lane.bars)
        changes.update(bar.end for bar in lane.bars if bar.end is not None)
        changes.update(mark.at for mark in lane.marks)
    return changes


def _merged(
    points: list[tuple[datetime, float]], borders: set[datetime]
) -> tuple[tuple[datetime, float], ...]:
    """Return the points that the mapping needs: its ends and the borders of gaps."""
    last = len(points) - 1
    return tuple(
        (at, left) for index, (at, left) in enumerate(points) if index in (0, last) or at in borders
    )
