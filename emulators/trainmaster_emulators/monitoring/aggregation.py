"""`Aggregation` of `timeSeries.list`: align each series, then reduce the series of each group to
one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster_emulators.monitoring.alignment import ALIGNERS, Values, align
from trainmaster_emulators.monitoring.series import Point, Series, SeriesKey, sorted_labels
from trainmaster_emulators.rest.api_errors import invalid
from trainmaster_emulators.rest.times import SECOND

PERIOD_NS_MIN: Final = 60 * SECOND
REDUCERS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "REDUCE_MEAN": lambda values: sum(values) / len(values),
    "REDUCE_MIN": min,
    "REDUCE_MAX": max,
    "REDUCE_SUM": sum,
    "REDUCE_COUNT": lambda values: float(len(values)),
}
NONE: Final = "REDUCE_NONE"
_GROUP: Final = re.compile(r"(metric|resource)\.labels?\.[a-zA-Z][a-zA-Z0-9_]*")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The aggregation that a query requests: alignment of each series, and reduction of several."""

    aligner: str = "ALIGN_NONE"
    period_ns: int = 0
    reducer: str = NONE
    groups: tuple[str, ...] = ()
    """Fields that distinguish groups, such as `metric.labels.gpu`."""

    @property
    def is_raw(self) -> bool:
        return self.aligner == "ALIGN_NONE"

    def apply(self, all_series: Iterable[Series], start_ns: int, end_ns: int) -> list[Series]:
        """Return the aligned and reduced series."""
        aligned = [
            (series, align(series, self.aligner, self.period_ns, start_ns, end_ns))
            for series in all_series
        ]
        if self.reducer == NONE:
            return [_with_values(series, values) for series, values in aligned if values]
        by_group: dict[SeriesKey, list[Values]] = defaultdict(list)
        for series, values in aligned:
            by_group[self._group(series.key)].append(values)
        return [self._reduce(key, values) for key, values in by_group.items() if any(values)]

    def _group(self, key: SeriesKey) -> SeriesKey:
        """Return the key of the group, which has the labels that distinguish it, and
        the project.
        """
        kept = {"metric": set[str](), "resource": {"project_id"}}
        for path in self.groups:
            owner, _, name = path.split(".")
            kept[owner].add(name)
        labels = {name: value for name, value in key.labels if name in kept["metric"]}
        resource_labels = {
            name: value for name, value in key.resource_labels if name in kept["resource"]
        }
        return SeriesKey(
            key.metric, sorted_labels(labels), key.resource, sorted_labels(resource_labels)
        )

    def _reduce(self, key: SeriesKey, members: Sequence[Values]) -> Series:
        by_period: dict[int, list[float]] = defaultdict(list)
        for values in members:
            for end, value in values.items():
                by_period[end].append(value)
        reduced = {end: REDUCERS[self.reducer](values) for end, values in by_period.items()}
        value_type = "INT64" if self.reducer == "REDUCE_COUNT" else "DOUBLE"
        return Series(key, "GAUGE", value_type, _points(reduced))


def parse_aggregation(
    aligner: str, period: str, reducer: str, groups: Sequence[str]
) -> Aggregation:
    """Check the parameters of a list; an empty text stands for a parameter that is not set.

    Raises ApiError (400).
    """
    aligner = aligner or "ALIGN_NONE"
    reducer = reducer or NONE
    if aligner not in ALIGNERS:
        raise invalid(f"This emulator does not support the aligner {aligner}.")
    if reducer not in (NONE, *REDUCERS):
        raise invalid(f"This emulator does not support the reducer {reducer}.")
    if aligner == "ALIGN_NONE":
        if reducer != NONE:
            raise invalid(
                "Field aggregation.perSeriesAligner is required with"
                " aggregation.crossSeriesReducer."
            )
        return Aggregation()
    match = _DURATION.fullmatch(period)
    period_ns = round(float(match[1]) * SECOND) if match else 0
    if period_ns < PERIOD_NS_MIN:
        raise invalid(
            f"Field aggregation.alignmentPeriod had an invalid value of {period!r}: at least 60s."
        )
    for path in groups:
        if not _GROUP.fullmatch(path):
            raise invalid(f"Field aggregation.groupByFields had an invalid value of {path!r}.")
    return Aggregation(aligner, period_ns, reducer, tuple(groups))


def _with_values(series: Series, values: Values) -> Series:
    return replace(series, kind="GAUGE", value_type="DOUBLE", points=_points(values))


def _points(values: Values) -> tuple[Point, ...]:
    return tuple(Point(end, end, values[end]) for end in sorted(values))
