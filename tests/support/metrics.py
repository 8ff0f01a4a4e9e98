"""A `MetricReader` that reads the points that a test has added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from trainmaster.ports.metrics import Label, Metric, MetricPoint, MetricQuery, MetricSeries, Reducer

REDUCE: Final[dict[Reducer, Callable[[Sequence[float]], float]]] = {
    Reducer.MEAN: lambda values: sum(values) / len(values),
    Reducer.MIN: min,
    Reducer.MAX: max,
    Reducer.COUNT: lambda values: float(len(values)),
}


@dataclass
class FakeMetrics:
    """The series of the installation. Points are added by `add`."""

    series: dict[tuple[Metric, frozenset[tuple[Label, str]]], list[MetricPoint]] = field(
        default_factory=dict
    )
    error: Exception | None = None
    """What each read raises; None: nothing."""
    queries: list[MetricQuery] = field(default_factory=list)
    """The reads that were answered."""

    def add(
        self,
        metric: Metric,
        replica: str,
        first: datetime,
        values: Sequence[float],
        gpu: str = "",
        generation: int = 1,
        more: Mapping[Label, str] | None = None,
    ) -> None:
        """Add a point for each value: the first at `first`, each further one a minute later.

        The points of a counter begin to count a minute before `first`. `more`: other labels.
        Without the label `job`, every job has the series.
        """
        labels = {
            Label.TASK_ID: replica,
            Label.TASK_TYPE: replica.rpartition("-")[0],
            Label.GENERATION: str(generation),
            **(more or {}),
        }
        if gpu:
            labels[Label.GPU] = gpu
        since = first - timedelta(minutes=1) if metric.is_counter else None
        points = [
            MetricPoint(first + timedelta(minutes=n), value, since)
            for n, value in enumerate(values)
        ]
        self.series.setdefault((metric, frozenset(labels.items())), []).extend(points)

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """Return the series and points that the query names, or raise `error` if it is set."""
        if self.error:
            raise self.error
        self.queries.append(query)
        found = [
            MetricSeries(labels, points)
            for (metric, pairs), all_points in self.series.items()
            if (labels := dict(pairs)) and metric is query.metric
            if query.replica in ("", labels[Label.TASK_ID])
            and (not query.job_id or labels.get(Label.JOB, query.job_id) == query.job_id)
            if (
                points := tuple(
                    point for point in all_points if query.start < point.at <= query.end
                )
            )
        ]
        return _reduced(query, found) if query.period_s else found


def _reduced(query: MetricQuery, found: Sequence[MetricSeries]) -> list[MetricSeries]:
    """Return one series for each group of labels, as Cloud Monitoring does.

    Each series first has its mean in each period. The query's reducer then combines the means of a
    group. Periods are counted back from the end of the query. Values of counters are taken as
    rates.
    """
    period = timedelta(seconds=query.period_s)
    groups: dict[tuple[str, ...], dict[datetime, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for series in found:
        by_period: dict[datetime, list[float]] = defaultdict(list)
        for point in series.points:
            period_end = query.end - (query.end - point.at) // period * period
            by_period[period_end].append(point.value)
        group = groups[tuple(series.labels.get(label, "") for label in query.group_by)]
        for end, values in by_period.items():
            group[end].append(sum(values) / len(values))
    return [
        MetricSeries(
            dict(zip(query.group_by, group, strict=True)),
            tuple(MetricPoint(at, REDUCE[query.reducer](values[at])) for at in sorted(values)),
        )
        for group, values in groups.items()
    ]
