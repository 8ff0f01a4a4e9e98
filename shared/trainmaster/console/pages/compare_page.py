"""The page that shows jobs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from trainmaster.console.pages.job_page import find_job
from trainmaster.console.pages.progress_section import (
    Curves,
    Points,
    draw_curves,
    draw_curves_over_steps,
    lines_of_jobs,
    read_curves,
    values_over_steps,
    values_over_time,
)
from trainmaster.console.pages.resources_page import time_range
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.core.reporting.history import read_history
from trainmaster.cost.report import cost_report
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.comparison import (
    JOBS_MAX,
    Rows,
    chosen_ids,
    facts,
    side_by_side,
    spec_differences,
)
from trainmaster.presentation.progress import read_progress

_START = datetime(1970, 1, 1, tzinfo=UTC)
"""The time at which all jobs of a chart are drawn to have started."""


class _JobColumn(NamedTuple):
    """The values that are read of one job."""

    facts: dict[str, str]
    """What became of it."""
    points: Points
    """What its program reported."""
    problem: str
    """Why that cannot be read; empty: it was read."""


@dataclass(frozen=True, slots=True)
class ComparePage:
    """Jobs side by side."""

    jobs: tuple[Job, ...]
    facts: Rows
    """Rows with the results of the jobs: state, duration, cost, metrics."""
    differences: Rows
    """What differs between their specs."""
    curves: Curves
    """Over steps, or the time since RUNNING, as if each job had started at the beginning of 1970.
    """
    over_steps: bool
    """Whether the curves are drawn over the steps of the programs, and not over time."""
    has_steps: bool
    """Whether a job reports steps."""
    problem: str
    """Why a job's metrics cannot be read."""


def read_compare_page(
    console: Console, job_ids: Sequence[str], *, over_steps: bool = False
) -> ComparePage:
    """Return the page.

    Raises PermanentError for a wrong number of jobs, and NotFoundError for an unknown one.

    Each job costs the reading of its document and of its ledger (record of events), and two calls
    of Cloud Monitoring. The console caches all but the document.
    """
    ids = chosen_ids(job_ids)
    with ThreadPoolExecutor(JOBS_MAX) as pool:
        jobs = tuple(pool.map(partial(find_job, console), ids))
        # One length for all jobs, so that their curves have the same resolution.
        period_s = max(time_range(job, console.clock(), hours="").period_s for job in jobs)
        columns = tuple(pool.map(partial(_read, console, period_s), jobs))
    by_job = {job.job_id: column.points for job, column in zip(jobs, columns, strict=True)}
    ends = (series[-1].at for points in by_job.values() for series in points.values())
    end = max([_START, *ends])
    by_step = lines_of_jobs(by_job, values_over_steps)
    if over_steps and by_step:
        curves = draw_curves_over_steps(by_step, _START, end, period_s)
    else:
        curves = draw_curves(lines_of_jobs(by_job, values_over_time), _START, end, period_s)
    return ComparePage(
        jobs=jobs,
        facts=side_by_side([column.facts for column in columns]),
        differences=spec_differences(jobs),
        curves=curves,
        over_steps=curves.steps is not None,
        has_steps=bool(by_step),
        problem=" ".join(dict.fromkeys(column.problem for column in columns if column.problem)),
    )


def _read(console: Console, period_s: int, job: Job) -> _JobColumn:
    """Return the column of a job. `period_s`: shortest period whose means are drawn.

    A job that has not run, and a tuning job, have no metrics of their own.
    """
    entries = console.ledgers.entries(job.job_id, has_ended=job.state.is_terminal)
    history = read_history(entries)
    report = cost_report(history, entries, console.now, console.cost_sources) if history else None
    progress = None
    problem = ""
    points: Points = {}
    if job.started_at and job.tuning is None:
        try:
            # Equal calls within a minute are answered from the console's cache.
            minute = console.clock().replace(second=0, microsecond=0)
            progress = read_progress(console.metrics, job, minute)
            shown = time_range(job, console.clock(), hours="", period_s=period_s)
            reported = read_curves(console.metrics, job, *shown)
            points = _since(job.started_at, timedelta(seconds=period_s), reported)
        except (PermanentError, TemporaryError) as error:
            problem = f"{error}."
    return _JobColumn(dict(facts(job, entries, report, progress, console.now)), points, problem)


def _since(start: datetime, period: timedelta, points: Points) -> Points:
    """Return the points as if the job had started at `_START`.

    They move by whole periods: Cloud Monitoring's periods end at multiples of their length, so the
    points of all jobs stay at common times.
    """
    offset = (start - _START) // period * period
    return {
        name: [point._replace(at=point.at - offset) for point in found]
        for name, found in points.items()
    }
