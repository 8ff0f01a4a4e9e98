"""The list of jobs: its pages, which begin after the position of the last job read, and
its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import islice

from trainmaster.console.pages.job_counts import (
    BATCH_MAX,
    JOBS_READ_MAX,
    StateCounts,
    jobs_after,
    newest_jobs,
)
from trainmaster.console.pages.job_filters import Filters, matches
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.plan import Plan, TaskGroup
from trainmaster.core.reporting.explain import short_round
from trainmaster.core.reporting.submission_origin import describe_origin
from trainmaster.core.rules.admission_queue import Wait, wait_of_job
from trainmaster.core.rules.messages import summary
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import JobFilter, JobPosition
from trainmaster.presentation.cost_view import money_words
from trainmaster.presentation.durations import duration_words
from trainmaster.presentation.failing import Failing, failing_jobs
from trainmaster.presentation.quiet import Quiet, read_quiet_jobs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the list."""

    job: Job
    kind: str
    origin: str
    waited: str
    """Time from creation to RUNNING, or until now."""
    ran: str
    """Time from RUNNING to the end, or until now; empty before."""
    machines: str
    situation: str
    """Why it waits or how it ended, in one line; empty if it simply runs or succeeded."""
    cost: str
    """Price of its first machines since RUNNING; empty if it is not known.

    The job's page has the exact cost.
    """
    failing: Failing | None
    """Set if the job keeps failing."""
    quiet: Quiet | None
    """Set if its program prints nothing, and will be ended for that."""


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of the list of jobs."""

    filters: Filters
    rows: tuple[JobRow, ...]
    next_page: str | None
    """Address of the next page; None: there is none."""
    read: int
    """Number of jobs that were read for this page."""
    stopped_early: bool
    """Whether the page ended because it read `JOBS_READ_MAX` jobs, and not because it is full."""
    counts: StateCounts
    """Jobs in each state that match the other filters. They do not depend on the page."""
    now: datetime

    @property
    def total(self) -> int:
        """Number of jobs on all pages, among those that were counted."""
        return self.counts.total(self.filters.states)

    @property
    def has_costs(self) -> bool:
        return any(row.cost for row in self.rows)


def read_job_list(console: Console, filters: Filters) -> JobList:
    """Return a page of jobs, the newest first. Trials are left out: their tuning job shows them."""
    batch = min(filters.size + 1, BATCH_MAX)
    if filters.needs_scan:
        newest = newest_jobs(console.store)
        counts = newest.counts(filters)
        source = newest.jobs_after(filters.after, batch)
    else:
        counts = StateCounts(console.store.count_by_state(filters.whole_label))
        source = jobs_after(console.store, filters.after, batch)
    position = filters.after
    matching_jobs: list[Job] = []
    read = 0
    for job in islice(source, max(JOBS_READ_MAX, filters.size + 1)):
        read += 1
        position = JobPosition(job.created_at, job.job_id)
        if JobFilter().matches(job) and matches(job, filters):
            matching_jobs.append(job)
        if len(matching_jobs) > filters.size:
            break
    is_full = len(matching_jobs) > filters.size
    stopped_early = not is_full and next(source, None) is not None
    shown = matching_jobs[: filters.size]
    last = JobPosition(shown[-1].created_at, shown[-1].job_id) if is_full else position
    next_page = filters.query(after=last) if is_full or stopped_early else None
    read_queue = cache(console.store.queue)
    now = console.now
    prices = console.cost_sources.prices()
    failing = failing_jobs(console.store, shown, now, _log.warning)
    quiet = _read_quiet(console, shown)
    rows = tuple(
        _job_row(
            job,
            now,
            wait_of_job(job, read_queue, console.limits),
            prices,
            failing.get(job.job_id),
            quiet.get(job.job_id),
        )
        for job in shown
    )
    return JobList(filters, rows, next_page, read, stopped_early, counts, now)


def _read_quiet(console: Console, jobs: Sequence[Job]) -> dict[str, Quiet]:
    """Return the jobs whose programs print nothing; none if Cloud Monitoring cannot be read.

    The console keeps the answer for a minute.
    """
    minute = console.clock().replace(second=0, microsecond=0)
    try:
        return read_quiet_jobs(console.metrics, jobs, minute)
    except (PermanentError, TemporaryError) as error:
        _log.warning("Cannot find out which programs print nothing: %s", error)
        return {}


def _job_row(
    job: Job,
    now: datetime,
    wait: Wait | None,
    prices: PriceList | Unknown,
    failing: Failing | None,
    quiet: Quiet | None,
) -> JobRow:
    running = (job.ended_at or now) - job.started_at if job.started_at else None
    waited = (job.started_at or job.ended_at or now) - job.created_at
    return JobRow(
        job=job,
        kind=job_kind(job),
        origin=describe_origin(job),
        waited=duration_words(max(waited, timedelta())),
        ran=duration_words(running) if running is not None else "",
        machines=machine_words(job.placed.plan),
        situation=situation(job, wait),
        cost=_cost(job, now, prices),
        failing=failing,
        quiet=quiet,
    )


def _cost(job: Job, now: datetime, prices: PriceList | Unknown) -> str:
    """Return the cost that follows from the job document alone.

    The ledger of every job would be too much to read.
    """
    if job.started_at is None or job.tuning is not None or isinstance(prices, Unknown):
        return ""
    hourly = hourly_cost(job.placed.plan, prices)
    seconds = Decimal(str(max(((job.ended_at or now) - job.started_at).total_seconds(), 0.0)))
    return (
        "" if isinstance(hourly, Unknown) else money_words(hourly * seconds / 3600, prices.currency)
    )


def job_kind(job: Job) -> str:
    if job.tuning is not None:
        return f"tuning, {job.tuning.ended} of {job.tuning.max_trials} trials"
    return f"trial of {job.trial_of.job_id}" if job.trial_of else "job"


def situation(job: Job, wait: Wait | None) -> str:
    """Return why the job waits or how it ended, in one line; empty if it simply runs or
    succeeded without a note.
    """
    if job.error_message or job.notes:
        return summary(job.error_message) if job.error_message else f"but: {job.notes[0]}"
    if wait is not None:
        return wait.sentence
    if job.state is JobState.PREPARING and job.placement.round:
        errors = job.placement.round
        problem = f" (the last one: {job.placement.problem})" if job.placement.problem else ""
        return (
            f"{errors} capacity error{'s' if errors > 1 else ''} so far{problem}; VMs are requested"
            f" in {job.zone}."
        )
    if job.round.is_held and job.state is JobState.RUNNING:
        return f"round {job.round.number} waits for its members"
    if job.round.without and not job.state.is_terminal:
        return short_round(job)
    return f"attempt {job.attempt}" if job.attempt > 1 and not job.state.is_terminal else ""


def machine_words(plan: Plan) -> str:
    """Return `1 x n1-standard-8 (chief), 4 x n1-standard-4 with 1 x nvidia-tesla-t4 (worker)`."""
    return ", ".join(f"{_group_words(group)} ({group.task_type})" for group in plan.groups)


def _group_words(group: TaskGroup) -> str:
    if group.tpu is not None:
        return f"{group.count} x {group.tpu.type}"
    gpus = (
        f" with {group.accelerator.count} x {group.accelerator.type}" if group.accelerator else ""
    )
    bought = group.purchase.price.prefix
    return f"{group.count} x {group.machine_type}{gpus}{f', {bought}' if bought else ''}"
