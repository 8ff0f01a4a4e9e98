"""Aligners: the points of one series become one value for each period.

Periods end at the end of the interval.

points      ·  ·  ·   ·  ·      ·  ·
periods  |────────|────────|────────|   each is open at its start and closed at its end
         start                     end
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from trainmaster_emulators.monitoring.series import Point, Series
from trainmaster_emulators.rest.api_errors import invalid
from trainmaster_emulators.rest.times import SECOND

Values = dict[int, float]
"""End of a period → value; periods without points are missing."""

_OF_POINTS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "ALIGN_MEAN": lambda values: sum(values) / len(values),
    "ALIGN_MIN": min,
    "ALIGN_MAX": max,
    "ALIGN_COUNT": lambda values: float(len(values)),
}
ALIGNERS: Final = ("ALIGN_NONE", "ALIGN_RATE", *_OF_POINTS)


def align(series: Series, aligner: str, period_ns: int, start_ns: int, end_ns: int) -> Values:
    """Return the value of each period.

    Raises ApiError (400) for an aligner that does not fit the metric's kind.
    """
    if aligner == "ALIGN_RATE":
        if series.kind != "CUMULATIVE":
            raise _wrong_aligner(aligner, series)
        return _rates(series.points, period_ns, start_ns, end_ns)
    if series.kind != "GAUGE":
        raise _wrong_aligner(aligner, series)
    by_period: dict[int, list[float]] = defaultdict(list)
    for point in series.points:
        if point.end_ns > start_ns:
            by_period[_period_end(point.end_ns, period_ns, end_ns)].append(point.value)
    return {end: _OF_POINTS[aligner](values) for end, values in by_period.items()}


def _rates(points: Sequence[Point], period_ns: int, start_ns: int, end_ns: int) -> Values:
    """Return the increase per second; an increase between two points is spread evenly over the time
    between them.
    """
    increases: Values = defaultdict(float)
    for begin, end, increase in _increases(points):
        at = max(begin, start_ns)
        while at < end:
            period_end = _period_end(at + 1, period_ns, end_ns)
            until = min(period_end, end)
            increases[period_end] += increase * (until - at) / (end - begin)
            at = until
    return {end: increase * SECOND / period_ns for end, increase in increases.items()}


def _increases(points: Sequence[Point]) -> Iterator[tuple[int, int, float]]:
    """Yield begin, end and increase between two points; a new start time means that the counter
    began at zero again.
    """
    if points:
        yield points[0].start_ns, points[0].end_ns, points[0].value
    for before, after in pairwise(points):
        if after.start_ns == before.start_ns:
            yield before.end_ns, after.end_ns, after.value - before.value
        else:
            yield after.start_ns, after.end_ns, after.value


def _period_end(at_ns: int, period_ns: int, end_ns: int) -> int:
    return end_ns - (end_ns - at_ns) // period_ns * period_ns


def _wrong_aligner(aligner: str, series: Series) -> Exception:
    return invalid(
        f"The aligner {aligner} cannot be applied to metrics with kind {series.kind} and value type"
        f" {series.value_type}: {series.key.metric}."
    )
