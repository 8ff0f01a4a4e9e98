"""The reports of programs: how far a job is, its curves, and those of several jobs over the time
since their start.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from trainmaster.console.chart_axis import At, Axis, StepAxis, TimeAxis
from trainmaster.console.incarnation_bands import DrawnBand
from trainmaster.console.metric_chart import DrawnChart, Line, Scale, draw_chart
from trainmaster.console.pages.resources_page import read_bands, time_range
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports.metrics import Label, Metric, MetricQuery, MetricReader
from trainmaster.presentation.progress import (
    METRIC,
    METRICS_MAX,
    Point,
    Progress,
    points_by_name,
    read_progress,
)
from trainmaster.presentation.quiet import read_quiet


class Position(NamedTuple):
    """The chart of a series about the program's position in its work."""

    title: str
    scale: Scale


POSITIONS: Final = {
    "step": Position("Step", Scale.NUMBER),
    "share": Position("Work done", Scale.SHARE),
}
"""Name of a series → its chart. The first one that has points is drawn."""
_SERIES: Final = (Label.NAME, Label.SOURCE, Label.ATTEMPT, Label.INCARNATION)
"""Labels that identify one series of a job."""
_DATA_SET: Final = re.compile(
    rf"{METRIC}(?:train|training|val|valid|validation|eval|test)[_/](?=.)"
)
"""Start of `metric/val_loss` and `metric/eval/loss`, which share a chart with `metric/loss`."""

Points = Mapping[str, Sequence[Point]]
"""Name of a series, such as `step` or `metric/loss` → its points, the oldest first, at least one.
"""
Lines = Mapping[str, Sequence[Line[At]]]
"""Name of a chart → its lines."""
Values = Mapping[str, Mapping[At, float]]
"""Name of a series → its values by their positions."""


@dataclass(frozen=True, slots=True)
class Curves:
    """Charts with one axis: of time, or of the steps of the program."""

    charts: tuple[DrawnChart, ...]
    start: datetime
    end: datetime
    period_s: int
    """Length of the periods whose means are drawn."""
    steps: tuple[int, int] | None = None
    """The first and the last step, if the axis has steps."""
    bands: tuple[DrawnBand, ...] = ()
    """Interruptions of any replica."""


@dataclass(frozen=True, slots=True)
class ProgressSection:
    """Everything is empty if nothing is known."""

    progress: Progress | None = None
    words: str = ""
    """The progress in words, at the time of the page."""
    quiet: str = ""
    """For how long the program has printed nothing, and when it will be ended for that; empty: it
    prints.
    """
    problem: str = ""
    """Why progress cannot be read."""
    curves: Curves | None = None
    has_steps: bool = False
    """Whether the program reports steps, so that its metrics can be drawn over them."""


def read_progress_section(
    console: Console, job: Job, *, over_steps: bool = False
) -> ProgressSection:
    """Return the section, by three calls of Cloud Monitoring, whose answers the console keeps for a
    minute.

    An error of Cloud Monitoring is named in the section: the rest of the page does not need it.
    """
    if job.started_at is None or job.tuning is not None:
        return ProgressSection()
    start, end, period_s = time_range(job, console.clock(), hours="")
    minute = console.clock().replace(second=0, microsecond=0)
    try:
        progress = read_progress(console.metrics, job, minute)
        quiet = read_quiet(console.metrics, job, minute)
        points = read_curves(console.metrics, job, start, end, period_s)
    except (PermanentError, TemporaryError) as error:
        return ProgressSection(problem=f"{error}.")
    by_step = values_over_steps(points)
    curves = None
    if over_steps and by_step:
        curves = draw_curves_over_steps(lines_of_job(by_step), start, end, period_s)
    elif points:
        lines = lines_of_job(values_over_time(points))
        end = _end_of_axis(lines, job, end)
        bands = read_bands(console, job, replica_id=None, start=start, end=end) if lines else ()
        curves = draw_curves(lines, start, end, period_s, bands) if lines else None
    return ProgressSection(
        progress,
        progress.words(console.now) if progress else "",
        quiet.words(console.now) if quiet else "",
        curves=curves,
        has_steps=bool(by_step),
    )


def _end_of_axis(lines: Lines[datetime], job: Job, read_until: datetime) -> datetime:
    """Return the end of the job, or its last value: values are read for some time after the end."""
    if job.ended_at is None:
        return read_until
    end = job.ended_at
    for chart in lines.values():
        for line in chart:
            end = max([end, *line.mean])
    return min(end, read_until)


def read_curves(
    reader: MetricReader, job: Job, start: datetime, end: datetime, period_s: int
) -> Points:
    """Return all that the job's program reported. Raises as `MetricReader.read`."""
    query = MetricQuery(
        job.job_id, Metric.PROGRESS, start, end, period_s=period_s, group_by=_SERIES
    )
    return points_by_name(reader.read(query))


def values_over_time(points: Points, names: Sequence[str] = ()) -> dict[str, dict[datetime, float]]:
    """Return the values of the series that are drawn, in their order.

    `names`: the series; empty: those that are drawn of one job. A series has one line through all
    executions of the program, from the source that has the latest point: units may differ.
    """
    return {
        name: {point.at: point.value for point in _of_one_source(points[name])}
        for name in names or _names([points])
        if name in points
    }


def values_over_steps(points: Points, names: Sequence[str] = ()) -> dict[str, dict[int, float]]:
    """Return the values of the program's metrics by the step that was reported in the same period.

    Of a step that was repeated after a restart, the last value counts. Empty if no step is known.
    """
    steps = {(point.at, point.incarnation): round(point.value) for point in points.get("step", ())}
    values: dict[str, dict[int, float]] = {}
    for name in names or _names([points]):
        if name not in points or name in POSITIONS:
            continue
        by_step: dict[int, float] = {}
        for point in _of_one_source(points[name]):
            step = steps.get((point.at, point.incarnation))
            if step is not None:
                by_step[step] = point.value
        if by_step:
            values[name] = by_step
    return values


def lines_of_job(values: Values[At]) -> Lines[At]:
    """Return the lines of one job. Those of one metric on several sets of data share a chart."""
    charts = {name: _DATA_SET.sub(METRIC, name) for name in values}
    sizes = Counter(charts.values())  # a metric that would be alone keeps its own name
    lines: dict[str, list[Line[At]]] = defaultdict(list)
    for name, chart in charts.items():
        line = Line(_title(name), mean=values[name], low={}, high={})
        lines[chart if sizes[chart] > 1 else name].append(line)
    return lines


def lines_of_jobs(
    by_job: Mapping[str, Points],
    values_of: Callable[[Points, Sequence[str]], Mapping[str, Mapping[At, float]]],
) -> Lines[At]:
    """Return a chart for each series, with a line for each job that has it.

    `by_job`: job id → its points. `values_of`: `values_over_time` or `values_over_steps`.
    """
    names = _names(by_job.values())
    lines: dict[str, list[Line[At]]] = {name: [] for name in names}
    for job_id, points in by_job.items():
        for name, values in values_of(points, names).items():
            lines[name].append(Line(job_id, mean=values, low={}, high={}))
    return {name: shown for name, shown in lines.items() if shown}


def draw_curves(
    lines: Lines[datetime],
    start: datetime,
    end: datetime,
    period_s: int,
    bands: tuple[DrawnBand, ...] = (),
) -> Curves:
    """Return the charts over time, in the order of `lines`."""
    charts = _draw(lines, TimeAxis(start, end, period_s))
    return Curves(charts, start, end, period_s, bands=bands)


def draw_curves_over_steps(
    lines: Lines[int], start: datetime, end: datetime, period_s: int
) -> Curves:
    """Return the charts over the steps of the program, in the order of `lines`."""
    steps: set[int] = set()
    for chart in lines.values():
        for line in chart:
            steps.update(line.mean)
    first = min(steps, default=0)
    last = max(steps, default=0)
    charts = _draw(lines, StepAxis(first, last))
    return Curves(charts, start, end, period_s, steps=(first, last))


def _draw(lines: Lines[At], axis: Axis[At]) -> tuple[DrawnChart, ...]:
    return tuple(
        draw_chart(_title(name), shown, axis, _scale(name)) for name, shown in lines.items()
    )


def _is_loss(name: str) -> bool:
    return "loss" in name.lower()


def _of_one_source(points: Sequence[Point]) -> list[Point]:
    """Return the points of the source that has the latest one: units of sources may differ."""
    return [point for point in points if point.source == points[-1].source]


def _title(name: str) -> str:
    return POSITIONS[name].title if name in POSITIONS else name.removeprefix(METRIC)


def _scale(name: str) -> Scale:
    return POSITIONS[name].scale if name in POSITIONS else Scale.NUMBER


def _names(jobs: Iterable[Points]) -> list[str]:
    """Return the series that are drawn, in this order: losses, other metrics, the position.

    If there are more than `METRICS_MAX` metrics, those with the newest points are drawn.
    """
    newest: dict[str, datetime] = {}
    for points in jobs:
        for name, series in points.items():
            last_at = series[-1].at
            newest[name] = max(newest.get(name, last_at), last_at)
    newest_first = sorted(
        (name for name in newest if name.startswith(METRIC)), key=newest.__getitem__, reverse=True
    )
    drawn = newest_first[:METRICS_MAX]
    drawn.sort(key=lambda name: (not _is_loss(name), name))
    position = [name for name in POSITIONS if name in newest][:1]
    return [*drawn, *position]
