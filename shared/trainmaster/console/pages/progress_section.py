"""The section of a job's page on the training itself: how far it is, and the curves of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from trainmaster.console.incarnation_bands import DrawnBand
from trainmaster.console.metric_chart import DrawnChart, Line, Scale, draw_chart
from trainmaster.console.pages.resources_page import read_bands, time_range
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports.metrics import Label, Metric, MetricQuery
from trainmaster.presentation.progress import METRIC, METRICS_MAX, Point, points_by_name, read_progress

SERIES = (Label.NAME, Label.SOURCE, Label.ATTEMPT, Label.INCARNATION)
POSITIONS = {"step": ("Step", Scale.NUMBER), "share": ("Work done", Scale.SHARE)}
"""The first one that has points is drawn."""


@dataclass(frozen=True, slots=True)
class ProgressSection:
    """Everything is empty if nothing is known."""

    words: str = ""
    problem: str = ""
    """Why progress cannot be read."""
    charts: tuple[DrawnChart, ...] = ()
    """The position first, then the metrics."""
    bands: tuple[DrawnBand, ...] = ()
    """Interruptions of any replica."""
    start: datetime | None = None
    end: datetime | None = None
    period_s: int = 0


def read_progress_section(console: Console, job: Job) -> ProgressSection:
    """Return the section, by two calls of Cloud Monitoring, whose answers the console keeps for a minute.

    An error of Cloud Monitoring is named in the section: the rest of the page does not need it.
    """
    if job.started_at is None or job.tuning is not None:
        return ProgressSection()
    start, end, period_s = time_range(job, console.clock(), "")
    minute = console.clock().replace(second=0, microsecond=0)
    query = MetricQuery(job.job_id, Metric.PROGRESS, start, end, period_s=period_s, group_by=SERIES)
    try:
        progress = read_progress(console.metrics, job, minute)
        by_name = points_by_name(console.metrics.read(query))
    except (PermanentError, TemporaryError) as error:
        return ProgressSection(problem=f"{error}.")
    newest_first = sorted(by_name, key=lambda name: by_name[name][-1].at, reverse=True)
    metrics = sorted([name for name in newest_first if name.startswith(METRIC)][:METRICS_MAX], key=_rank)
    names = [*[name for name in POSITIONS if name in by_name][:1], *metrics]
    charts = tuple(
        draw_chart(title, [_line(title, by_name[name])], start, end, period_s, scale)
        for name in names
        for title, scale in [POSITIONS.get(name, (name.removeprefix(METRIC), Scale.NUMBER))]
    )
    return ProgressSection(
        words=progress.words(console.now) if progress else "",
        charts=charts,
        bands=read_bands(console, job, None, start, end) if charts else (),
        start=start,
        end=end,
        period_s=period_s,
    )


def _rank(name: str) -> tuple[bool, str]:
    """Losses come first."""
    return "loss" not in name.lower(), name


def _line(title: str, points: list[Point]) -> Line:
    """Return one line through all incarnations, from the source that has the latest point: units may differ."""
    values: Mapping[datetime, float] = {point.at: point.value for point in points if point.source == points[-1].source}
    return Line(title, values, {}, {})
