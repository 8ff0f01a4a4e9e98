"""Jobs that keep failing, as users see them while the jobs run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.members import is_member
from trainmaster.core.model.replica import Replica
from trainmaster.core.reporting.next_steps import EVERY_REPLICA_RUNS
from trainmaster.core.rules.failure_row import current_row, failing_words, following_words
from trainmaster.errors import PermanentError
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.ports.store import JobQueries
from trainmaster.presentation.job_view import View, timestamp


@dataclass(frozen=True, slots=True)
class Failing:
    """A job that has failed at least twice in a row."""

    row: FailureRow
    """The failures in a row."""
    words: str
    """`failing: 6 in a row, last FileNotFoundError: ... (train.py:18)`."""
    next_step: str
    """What follows, and when the job ends at the latest, as a sentence."""

    def view(self) -> View:
        """Return the row as JSON."""
        view: View = {
            "failures": self.row.failures,
            "lastFailure": self.row.last,
            "since": timestamp(self.row.since),
            "lastTime": timestamp(self.row.at),
            "nextStep": self.next_step,
        }
        if self.row.failures_left is not None:
            view["failuresLeft"] = self.row.failures_left
        return view


def failing_of(job: Job, replicas: Iterable[Replica], now: datetime) -> Failing | None:
    """Return the row of failures of a job; None: it does not keep failing.

    `replicas`: those of the current attempt.
    """
    row = current_row(job, tuple(replicas), now)
    if row is None:
        return None
    return Failing(row, failing_words(row), following_words(job, row))


def with_failing(view: View, failing: Failing | None) -> View:
    """Return the view of a job (`job_view`), with its row of failures if it keeps failing."""
    if failing is None:
        return view
    return {**view, EXTENSION: {**view[EXTENSION], "failing": failing.view()}}


def with_failures(failing: Failing | None, next_steps: Sequence[str]) -> tuple[str, ...]:
    """Return the next steps of a job (`core.reporting.next_steps`) after what follows its failures.

    That every replica runs is then left out: it would sound as if all were well.
    """
    if failing is None:
        return tuple(next_steps)
    return (failing.next_step, *(step for step in next_steps if step != EVERY_REPLICA_RUNS))


def failing_jobs(
    store: JobQueries, jobs: Sequence[Job], now: datetime, warn: Callable[[str], object]
) -> dict[str, Failing]:
    """Return those of these jobs that keep failing, by job id.

    The document of a gang, whose members restart together, has its row. For other jobs, one query
    reads the replicas that fail; without such jobs, nothing is read. If Firestore refuses the
    query, because its index is missing, `warn` gets the reason, and only gangs are returned.
    """
    to_query = [job for job in jobs if _has_replicas_judged_alone(job)]
    replicas: Mapping[str, Sequence[Replica]] = {}
    try:
        replicas = store.failing_replicas(to_query) if to_query else {}
    except PermanentError as error:
        warn(f"Cannot find out which of the jobs keep failing: {error}")
    rows = {job.job_id: failing_of(job, replicas.get(job.job_id, ()), now) for job in jobs}
    return {job_id: failing for job_id, failing in rows.items() if failing is not None}


def _has_replicas_judged_alone(job: Job) -> bool:
    """Whether replicas of the job may fail now that are no members of its rounds."""
    may_run = job.state in (JobState.PREPARING, JobState.RUNNING) and job.tuning is None
    return may_run and not all(is_member(job.plan, replica) for replica in job.plan.replica_ids)
