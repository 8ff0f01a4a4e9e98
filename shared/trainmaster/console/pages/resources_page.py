"""The page of a job's resource metrics: what its machines use, by role or for one replica.

`page_routes` reads the filters of an address and then the page; `progress_section` draws its curves
over the same time and bands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

from trainmaster.console.chart_axis import TimeAxis
from trainmaster.console.incarnation_bands import (
    DrawnBand,
    draw_bands,
    incarnation_bands,
    interruption_bands,
)
from trainmaster.console.metric_chart import DrawnChart, Line, Scale, draw_chart
from trainmaster.console.pages.job_page import find_job, parse_replica
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.reporting.history import read_history
from trainmaster.errors import PermanentError
from trainmaster.ports.metrics import (
    RESOURCES,
    Label,
    Metric,
    MetricQuery,
    MetricsDeniedError,
    MetricSeries,
    Reducer,
)
from trainmaster.presentation.utilization import Answers, metrics_end, read_all, read_idle_gpus

PERIODS_MAX: Final = 240
"""Values of a line: more would not be visible in the width of a chart."""
PERIOD_S_MIN: Final = 60
"""Shortest period of a mean. Source: Cloud Monitoring's API, Aggregation.alignment_period."""
REPLICAS_MAX: Final = 500
"""Replicas in the picker; others have an address all the same."""
RANGES: Final = {"": "whole job", "1": "last hour", "6": "last 6 hours", "24": "last day"}
"""Hours → words."""
NAMES: Final = {
    Metric.CPU: "CPU",
    Metric.MEMORY: "Memory",
    Metric.GPU: "GPU: share of the time in which a kernel ran",
    Metric.GPU_MEMORY: "GPU memory",
    Metric.RECEIVED: "Network received",
    Metric.SENT: "Network sent",
}

_LABEL_VALUE: Final = re.compile(rf"\d{{1,3}}|({'|'.join(TaskType)})(-\d+)?")
"""Index of a GPU, task type, or replica id."""


@dataclass(frozen=True, slots=True)
class ResourceFilters:
    """The filters of the page, from its address."""

    replica: str = ""
    """Replica id; empty: all, by role."""
    hours: str = ""
    """Length of time before now or the end of the job; empty: the whole job."""


@dataclass(frozen=True, slots=True)
class ResourcesPage:
    """The page of resource metrics."""

    job: Job
    filters: ResourceFilters
    replicas: tuple[str, ...]
    """Replica ids of the picker."""
    start: datetime
    end: datetime
    """Time of the charts."""
    charts: tuple[DrawnChart, ...]
    """Charts of the metrics that have values."""
    bands: tuple[DrawnBand, ...]
    """Bands behind each chart: the incarnations (executions of the program) of the chosen replica,
    or the interruptions of any replica.
    """
    period_s: int
    """Length of the periods whose means are drawn."""
    idle: str
    """Sentence about idle GPUs; empty: none."""
    problem: str
    """Why the metrics cannot be read; empty: they were read."""
    has_tpu: bool
    """Whether the job has TPU slices, whose TensorCores are in Google's own metrics."""


def read_resource_filters(args: Mapping[str, str]) -> ResourceFilters:
    """Return the filters of an address. Raises PermanentError for a wrong length of time."""
    filters = ResourceFilters(args.get("replica", "").strip(), args.get("hours", "").strip())
    if filters.hours not in RANGES:
        raise PermanentError(
            f"hours: must be one of {', '.join(filter(None, RANGES))}, or be left out"
        )
    return filters


def read_resources_page(console: Console, job_id: str, filters: ResourceFilters) -> ResourcesPage:
    """Return the page, which names the problem if metrics may not be read.

    Raises PermanentError for an unknown job or replica, or a tuning job, and TemporaryError.
    """
    job = find_job(console, job_id)
    if job.tuning is not None:
        raise PermanentError(
            f"{job_id} is a tuning job and has no machines of its own; each of its trials has some"
        )
    replica_id = parse_replica(filters.replica, job) if filters.replica else None
    start, end, period_s = time_range(job, console.clock(), filters.hours)
    charts: tuple[DrawnChart, ...] = ()
    idle = ""
    problem = ""
    try:
        template = MetricQuery(  # `_charts` sets the metric
            job_id, Metric.CPU, start, end, replica=filters.replica, period_s=period_s
        )
        charts = _charts(console, template)
        if any(chart.name == NAMES[Metric.GPU] for chart in charts):
            idle = read_idle_gpus(
                console.metrics, job, console.clock().replace(second=0, microsecond=0)
            )
    except MetricsDeniedError as error:
        problem = f"{error}."
    return ResourcesPage(
        job=job,
        filters=filters,
        replicas=tuple(str(replica_id) for replica_id in job.plan.replica_ids[:REPLICAS_MAX]),
        start=start,
        end=end,
        charts=charts,
        bands=read_bands(console, job, replica_id, start, end) if charts else (),
        period_s=period_s,
        idle=idle,
        problem=problem,
        has_tpu=any(group.tpu for group in job.plan.groups),
    )


def read_bands(
    console: Console, job: Job, replica_id: ReplicaId | None, start: datetime, end: datetime
) -> tuple[DrawnBand, ...]:
    """Return the bands behind the charts from `start` to `end`: the incarnations of a replica, or
    without one the interruptions of any replica.
    """
    history = read_history(console.ledgers.entries(job.job_id, has_ended=job.state.is_terminal))
    if history is None:
        return ()
    last = min(job.ended_at or end, end)
    bands = (
        incarnation_bands(history, replica_id, last)
        if replica_id
        else interruption_bands(history, start, last)
    )
    return draw_bands(bands, start, end)


class TimeRange(NamedTuple):
    """The time that charts show, in periods whose means are drawn."""

    start: datetime
    end: datetime
    period_s: int


def time_range(job: Job, now: datetime, hours: str, period_s: int = PERIOD_S_MIN) -> TimeRange:
    """Return the time of a job's charts.

    `hours`: only its last hours; empty: the whole job. `period_s`: shortest period. The end is a
    multiple of the period, so that polls within a period ask for the same, and values do not move.
    """
    end = metrics_end(job, now)
    start = job.started_at or job.created_at
    if hours:
        start = max(start, end - timedelta(hours=int(hours)))
    needed_s = (end - start).total_seconds() / PERIODS_MAX
    period_s = max(PERIOD_S_MIN * ceil(needed_s / PERIOD_S_MIN), period_s)
    end_s = ceil(end.timestamp() / period_s) * period_s
    if end_s > now.timestamp():  # a period that is not over has a mean that still changes
        end_s -= period_s
    end = datetime.fromtimestamp(end_s, UTC)
    return TimeRange(min(start, end - timedelta(seconds=period_s)), end, period_s)


def _charts(console: Console, template: MetricQuery) -> tuple[DrawnChart, ...]:
    """Return a chart for each metric that has values: by role with a band from the lowest to the
    highest machine, or for one replica.

    `template` has the job, the replica and the time.
    """
    queries = {metric: _query(template, metric, Reducer.MEAN) for metric in RESOURCES}
    means = read_all(console.metrics, queries.values())
    shown_queries = {metric: query for metric, query in queries.items() if means[query]}
    bound_queries: list[MetricQuery] = []  # of the bands, only for metrics that have values
    if not template.replica:
        for metric in shown_queries:
            bound_queries.append(_query(template, metric, Reducer.MIN))
            bound_queries.append(_query(template, metric, Reducer.MAX))
    answers = {**means, **read_all(console.metrics, bound_queries)}
    charts = []
    for metric, query in shown_queries.items():
        lines = _lines(query, answers)
        if lines:
            name = NAMES[metric]
            scale = _scale(metric)
            axis = TimeAxis(query.start, query.end, query.period_s)
            charts.append(draw_chart(name, lines, axis, scale))
    return tuple(charts)


def _scale(metric: Metric) -> Scale:
    return Scale.RATE if metric.is_counter else Scale.SHARE


def _query(template: MetricQuery, metric: Metric, reducer: Reducer) -> MetricQuery:
    """Return the query: a line for each role, or for each GPU of one replica."""
    if not template.replica:
        label = Label.TASK_TYPE
    elif metric in (Metric.GPU, Metric.GPU_MEMORY):
        label = Label.GPU
    else:
        label = Label.TASK_ID
    return replace(template, metric=metric, reducer=reducer, group_by=(label,))


def _lines(query: MetricQuery, answers: Answers) -> list[Line[datetime]]:
    """Return the lines of a chart, in the order of their names.

    `query`: that of the means; those of the lows and highs differ in the reducer only.
    """
    (label,) = query.group_by
    by_reducer: dict[Reducer, dict[str, dict[datetime, float]]] = {
        reducer: _values(answers.get(replace(query, reducer=reducer), ()), label)
        for reducer in Reducer
    }
    lows = by_reducer[Reducer.MIN]
    highs = by_reducer[Reducer.MAX]
    return [
        Line(_line_name(label, name), means, lows.get(name, {}), highs.get(name, {}))
        for name, means in sorted(by_reducer[Reducer.MEAN].items())
    ]


def _line_name(label: Label, value: str) -> str:
    return f"GPU {value}" if label is Label.GPU else value.replace("-", " ")


def _values(all_series: Sequence[MetricSeries], label: Label) -> dict[str, dict[datetime, float]]:
    """Return the values by the label.

    Labels that no agent writes are left out: a program on a VM can write any.
    """
    values: dict[str, dict[datetime, float]] = {}
    for series in all_series:
        name = series.labels.get(label, "")
        if _LABEL_VALUE.fullmatch(name):
            values[name] = {point.at: point.value for point in series.points}
    return values
