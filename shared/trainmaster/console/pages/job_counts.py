"""The jobs of the list, and their numbers by state: from the store, or among the newest jobs.

The store finds and counts jobs by state and by a whole label, for which it has indexes. The other
filters need the jobs themselves: the console reads the newest `JOBS_READ_MAX`, and the page shows a
note if there are more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from trainmaster.console.pages.job_filters import Filters, matches
from trainmaster.core.model.job import Job, JobState
from trainmaster.ports import JobFilter, JobPosition, Store

JOBS_READ_MAX: Final = 1_000
"""Jobs among which matches are counted, and that one page reads when a filter accepts few of them.
"""
BATCH_MAX: Final = 200
"""Jobs that one query reads."""


@dataclass(frozen=True, slots=True)
class StateCounts:
    """Number of jobs in each state that match the filters other than the state's."""

    by_state: Mapping[JobState, int] | None
    """None: they are being counted."""
    newest: int | None = None
    """Number of the newest jobs that were counted; None: all jobs."""

    def total(self, states: Sequence[JobState]) -> int | None:
        """Return the number of jobs in these states; without any, in all. None: not counted yet."""
        if self.by_state is None:
            return None
        return sum(count for state, count in self.by_state.items() if not states or state in states)


@dataclass(frozen=True, slots=True)
class NewestJobs:
    """The newest jobs, the newest first."""

    store: Store
    jobs: tuple[Job, ...]
    is_whole: bool
    """Whether there are no other jobs."""

    def counts(self, filters: Filters) -> StateCounts:
        """Count those that match. Trials and deleted jobs are not in the list."""
        listed = [job for job in self.jobs if JobFilter().matches(job)]
        others = replace(filters, states=())
        counts = Counter(job.state for job in listed if matches(job, others))
        return StateCounts(
            {state: counts[state] for state in JobState}, None if self.is_whole else len(listed)
        )

    def jobs_after(self, after: JobPosition | None, batch: int) -> Iterator[Job]:
        """Return the jobs after the position.

        Those of this object are not read again; others are read in batches.
        """
        for job in self.jobs:
            if after is None or _is_older(_position(job), after):
                yield job
        if not self.is_whole:
            last = _position(self.jobs[-1])
            is_behind = after is not None and _is_older(after, last)
            yield from jobs_after(self.store, after if is_behind else last, batch)


def newest_jobs(store: Store) -> NewestJobs:
    """Read the newest jobs, at most `JOBS_READ_MAX`."""
    source = jobs_after(store, after=None, batch=BATCH_MAX)
    jobs = tuple(islice(source, JOBS_READ_MAX))
    has_older = False
    if len(jobs) == JOBS_READ_MAX:
        has_older = bool(store.recent_jobs(limit=1, after=_position(jobs[-1])))
    return NewestJobs(store, jobs, is_whole=not has_older)


def jobs_after(
    store: Store, after: JobPosition | None, batch: int, only: JobFilter | None = None
) -> Iterator[Job]:
    """Read the jobs after the position, the newest first, in batches as they are needed.

    Each batch is twice as large as the one before, up to `BATCH_MAX`: a caller that needs many jobs
    makes few queries.
    """
    while True:
        jobs = store.recent_jobs(batch, after, only)
        yield from jobs
        if len(jobs) < batch:
            return
        after = _position(jobs[-1])
        batch = min(2 * batch, BATCH_MAX)


def indexed_condition(filters: Filters) -> JobFilter:
    """Return one condition of the filters: the store finds its jobs without reading others.

    With a second one, the store itself would skip jobs, and no limit would end its search.
    """
    labels = (filters.whole_label,) if filters.whole_label else ()
    narrowest = JobFilter(states=filters.states, labels=labels).narrowest()
    return replace(narrowest, with_unlisted=True)


def _is_older(position: JobPosition, other: JobPosition) -> bool:
    """Return whether a position comes later in the list than the other one."""
    return (position.created_at, position.job_id) < (other.created_at, other.job_id)


def _position(job: Job) -> JobPosition:
    return JobPosition(job.created_at, job.job_id)
