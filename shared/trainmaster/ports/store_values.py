"""Values that the Store returns and accepts, besides those of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from trainmaster.core.model.job import Job, JobState, Label, State
from trainmaster.core.model.job_names import lower_case_names
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.owner import owner

SUBMISSION_MAX: Final = timedelta(seconds=60)
"""Time that the function submit may take until a published job is stored, or its `Rejection` is."""
CLOCKS_DIFFER: Final = timedelta(seconds=10)
"""More than the clock of a function differs from that of Pub/Sub."""
MACHINES: Final = "machines"
"""Key of the machine set in `Loaded.tokens`."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state as it was read, with the preconditions for writing it."""

    state: State
    tokens: Mapping[str, object]
    """The adapter's version of each document that was read.

    Keys: `job`, `machines` for the machine set, and the keys of replicas.
    """
    read_at: Any = None
    """The adapter's read time of the state if the whole attempt was read as of one moment; else
    None.
    """


@dataclass(frozen=True, slots=True)
class LoadedSet:
    """A machine set as it was read, with the precondition for writing it."""

    machine_set: MachineSet
    token: object


@dataclass(frozen=True, slots=True)
class VmOwner:
    """Whose VM it is."""

    job_id: str
    """The job that decides about the VM: the holder of its machine set."""
    set_id: str
    """The job that created the VM, and whose label it has."""
    is_kept: bool = False
    """Whether the machine set is kept for a next job."""


@dataclass(frozen=True, slots=True)
class PendingEntries:
    """Ledger entries of one job whose effects have not been confirmed, compared with a state that
    was read before.
    """

    included: tuple[str, ...]
    """Keys of entries that were committed before the state was read: the state contains their
    changes.
    """
    later: tuple[str, ...]
    """Keys of the other entries: they may have been committed after the state was read."""
    tokens: Mapping[str, object] = field(default_factory=dict, compare=False)
    """Key → version of the entry that was read, for `mark_done`."""


@dataclass(frozen=True, slots=True)
class JobPosition:
    """Position of a job in the job list, which is ordered by creation time, then by id."""

    created_at: datetime
    job_id: str


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The jobs of a list.

    Deleted jobs are in none, nor are trials: users see them with their tuning job. A list that
    skips them itself, so that it can stop after a number of jobs, asks `with_unlisted`.
    """

    states: tuple[JobState, ...] = ()
    """Any of these; empty: all states."""
    user: str = ""
    """The user who submitted the job, verified or not, in upper or lower case; empty: any user."""
    labels: tuple[Label, ...] = ()
    """All of these."""
    name: str = ""
    """The id or the display name, in any case; empty: any."""
    with_unlisted: bool = False
    """Also deleted jobs and trials."""

    def matches(self, job: Job) -> bool:
        is_listed = self.with_unlisted or (job.deleted_at is None and job.trial_of is None)
        has_state = not self.states or job.state in self.states
        has_user = not self.user or self.user.lower() == owner(job).user.lower()
        has_labels = all(label in job.labels for label in self.labels)
        has_name = not self.name or self.name.lower() in lower_case_names(job)
        return is_listed and has_state and has_user and has_labels and has_name

    def narrowest(self) -> JobFilter:
        """Return the one condition of this filter that is likely to leave the fewest jobs.

        Few jobs have the same name. Jobs that have not ended are few beside those that users and
        labels have gathered for years.
        """
        if self.name:
            return JobFilter(name=self.name)
        if self.states and not any(state.is_terminal for state in self.states):
            return JobFilter(states=self.states)
        if self.user:
            return JobFilter(user=self.user)
        if self.labels:
            return JobFilter(labels=self.labels[:1])
        return JobFilter(states=self.states)


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """All jobs that have not ended."""

    jobs: tuple[Job, ...]
    unreadable: tuple[str, ...] = ()
    """Ids of jobs whose documents this release cannot read.

    They are logged as errors, and stop no other job.
    """

    @property
    def job_ids(self) -> tuple[str, ...]:
        return (*(job.job_id for job in self.jobs), *self.unreadable)


@dataclass(frozen=True, slots=True)
class AdmissionToken:
    """The right to admit one job, decided on the live jobs as they were when the token was taken.

    A commit that passes the token succeeds only if no other job was admitted in between.
    """

    token: object
    """The adapter's version of the admission document."""
    live: LiveJobs


@dataclass(frozen=True, slots=True)
class SweepRequests:
    """How far the requests of sweeps to `provision` have come. None: never."""

    requested_at: datetime | None = None
    """When a sweep published its requests last."""
    reached_at: datetime | None = None
    """When the latest request that was delivered had been published, of those to check all VMs."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on something alone, until it is released or expires.

    It saves work; no rule depends on it.
    """

    name: str
    token: object
    """The adapter's version of the lease."""
    holder: str = ""
    """Message id of the delivery that took the lease. Empty: unknown."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A submission that did not become a job."""

    key: str
    """Derived from the content, so that a redelivered submission gives the same rejection."""
    source: str
    """The object and its generation, or a hash of the message."""
    job_id: str | None
    """None if the submission has no readable job id."""
    problems: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Orphan:
    """A VM with a job's label, but without a job of that id."""

    instance_id: str
    """Google's numeric id, which is never used again."""
    name: str
    zone: str
    label: str
    """Value of the VM's job label."""
    first_seen_at: datetime


class AlreadyRecordedError(Exception):
    """The ledger already has an entry with this key: the event was judged before.

    It may have been judged by the same process, if the response to its commit was lost.
    """
