"""The list of jobs: its pages, and what they cost in all.

The newest jobs come first, and a page begins after the position of the last job read. In any other
order, a page is a part of the newest jobs, which are read at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import islice

from trainmaster.console.pages.job_counts import (
    BATCH_MAX,
    JOBS_READ_MAX,
    StateCounts,
    indexed_condition,
    jobs_after,
    newest_jobs,
)
from trainmaster.console.pages.job_filters import Filters, matches
from trainmaster.console.pages.job_order import key_of
from trainmaster.console.pages.job_rows import (
    JobRow,
    Measured,
    cost_of,
    currency_of,
    job_rows,
    measure,
)
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.ports import JobFilter, JobPosition
from trainmaster.presentation.cost_view import money_words


@dataclass(frozen=True, slots=True)
class CostSum:
    """The cost of all jobs of a page together, as far as it is known."""

    words: str
    """Empty: no cost is known."""
    jobs: int
    """Number of jobs whose costs are added."""
    unknown: int
    """Number of jobs that have run, and whose cost is not known."""


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
    cost: CostSum

    @property
    def total(self) -> int | None:
        """Number of jobs on all pages, among those that were counted. None: not counted yet."""
        return self.counts.total(self.filters.states)

    @property
    def is_whole(self) -> bool:
        """Whether the page has all jobs that match."""
        return self.next_page is None and self.filters.is_first_page


@dataclass(frozen=True, slots=True)
class _Shown:
    """The jobs of a page, and where the next one begins."""

    jobs: Sequence[Job]
    measured: Measured
    counts: StateCounts | None
    """None: the store counts the jobs."""
    next_page: str | None
    read: int
    stopped_early: bool = False


def read_job_list(console: Console, filters: Filters, *, waits_for_counts: bool = False) -> JobList:
    """Return a page of jobs. Trials are left out: their tuning job shows them.

    The jobs are read before they are counted, because a page without numbers is of use.
    """
    by_time = filters.order.is_newest_first
    shown = _newest_first(console, filters) if by_time else _sorted(console, filters)
    rows = job_rows(console, shown.jobs, shown.measured)
    counts = shown.counts or StateCounts(
        console.counter.counts(filters.whole_label, waits=waits_for_counts)
    )
    return JobList(
        filters=filters,
        rows=rows,
        next_page=shown.next_page,
        read=shown.read,
        stopped_early=shown.stopped_early,
        counts=counts,
        now=console.now,
        cost=_cost_sum(console, shown.jobs),
    )


def _newest_first(console: Console, filters: Filters) -> _Shown:
    """Return a page of the matching jobs after the position in the address.

    One job more than the page shows is read: it says whether there is another page.
    """
    batch = min(filters.size + 1, BATCH_MAX)
    counts: StateCounts | None
    if filters.needs_scan:
        newest = newest_jobs(console.store)
        counts = newest.counts(filters)
        source = newest.jobs_after(filters.after, batch)
    else:
        counts = None
        source = jobs_after(console.store, filters.after, batch, indexed_condition(filters))
    position = filters.after
    matching_jobs: list[Job] = []
    read = 0
    for job in islice(source, max(JOBS_READ_MAX, filters.size + 1)):
        read += 1
        position = JobPosition(job.created_at, job.job_id)
        if _is_listed(job, filters):
            matching_jobs.append(job)
        if len(matching_jobs) > filters.size:
            break
    is_full = len(matching_jobs) > filters.size
    stopped_early = not is_full and next(source, None) is not None
    shown = matching_jobs[: filters.size]
    last = JobPosition(shown[-1].created_at, shown[-1].job_id) if is_full else position
    next_page = filters.query(after=last) if is_full or stopped_early else None
    return _Shown(shown, measure(console, shown), counts, next_page, read, stopped_early)


def _sorted(console: Console, filters: Filters) -> _Shown:
    """Return a page of the newest jobs, sorted by another column."""
    newest = newest_jobs(console.store)
    matching_jobs = [job for job in newest.jobs if _is_listed(job, filters)]
    measured = measure(console, matching_jobs)
    key = key_of(filters.order.column, measured, console.cost_sources.prices(), console.now)
    end = filters.start + filters.size
    return _Shown(
        filters.order.sort(matching_jobs, key)[filters.start : end],
        measured,
        newest.counts(filters),
        filters.query(start=end) if end < len(matching_jobs) else None,
        len(newest.jobs),
    )


def _is_listed(job: Job, filters: Filters) -> bool:
    """Return whether the job matches, and is neither deleted nor a trial."""
    return JobFilter().matches(job) and matches(job, filters)


def _cost_sum(console: Console, jobs: Sequence[Job]) -> CostSum:
    prices = console.cost_sources.prices()
    ran = [job for job in jobs if job.started_at is not None and job.tuning is None]
    all_costs = [cost_of(job, console.now, prices) for job in ran]
    costs = [cost for cost in all_costs if cost is not None]
    words = money_words(sum(costs, Decimal(0)), currency_of(prices)) if costs else ""
    return CostSum(words, len(costs), len(ran) - len(costs))
