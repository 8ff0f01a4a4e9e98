"""A MetricReader on samples of the test."""

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
    """Samples of jobs. `error` is raised by each read; `queries` are those that were answered."""

    series: dict[tuple[Metric, frozenset[tuple[Label, str]]], list[MetricPoint]] = field(
        default_factory=dict
    )
    error: Exception | None = None
    queries: list[MetricQuery] = field(default_factory=list)

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
        """Add a value for each minute from `first` on. Counters count from a minute before it.

        `more`: other labels. Without the label `job`, the values are those of every job.
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
    """Reduce the means of the periods. Values of counters are taken as rates."""
    groups: dict[tuple[str, ...], dict[datetime, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for series in found:
        by_period: dict[datetime, list[float]] = defaultdict(list)
        for point in series.points:
            periods_left = (query.end - point.at) // timedelta(seconds=query.period_s)
            by_period[query.end - periods_left * timedelta(seconds=query.period_s)].append(
                point.value
            )
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
