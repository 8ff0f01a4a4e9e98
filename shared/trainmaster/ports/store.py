"""Stored state: jobs, replicas, ledgers, and facts about all jobs together.

A ledger is the record of a job's events and decisions. The *effects* of an entry, such as a request
for VMs, are confirmed in it when they have happened. An *attempt* is one execution of the whole
job, and a *round* one common start of its members; between rounds, members *hold*: they wait for
each other. A *sweep* checks all jobs, every minute. The *floor* is the lowest VM generation that
counts: VMs below it are outdated.

Adapters are in `gcp.firestore` and, for tests and the simulator, in `trainmaster_local.memory`; one
contract test holds both to these docstrings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from trainmaster.core.events import End
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.rules.admission_queue import AdmissionQueue
from trainmaster.core.transitions.change import Change
from trainmaster.ports.store_values import (
    AdmissionToken,
    JobFilter,
    JobPosition,
    Lease,
    LiveJobs,
    Loaded,
    LoadedSet,
    Orphan,
    PendingEntries,
    Rejection,
    SweepRequests,
    VmOwner,
)

COMMIT_MAX: Final = timedelta(minutes=2)
"""Longest time that is assumed between the report of a VM's loss and its commit."""
LIVE_PAGE: Final = 500
"""Live jobs that are read at a time, so that the memory of a sweep does not grow with their number.
"""
LOSSES_READ: Final = 50
"""Losses that are compared with the beginning of a round, at most."""
FAILING_READ: Final = 1000
"""Failing replicas that one query returns, at most."""
FAILING_JOBS: Final = 30
"""Jobs of one query for failing replicas. Source: Firestore, the limit of the operator `in`."""


class States(Protocol):
    """The stored jobs and replicas: reads for decisions, and the one atomic commit."""

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        """Return the job, and the replica with the key `replica` if there is one.

        None: there is no such job.
        """
        ...

    def load_attempt(self, job_id: str, *, if_needed: bool = False) -> Loaded | None:
        """Return the job and all replicas of its current attempt, as of one moment.

        None: there is no such job. `if_needed`: without the replicas, unless
        `Job.needs_replicas`.
        """
        ...

    def commit(
        self,
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        admission_token: AdmissionToken | None = None,
    ) -> None:
        """Write the ledger entry and the changed documents in one atomic step, or nothing.

        Raises AlreadyRecordedError if an entry of that key exists, and ConflictError if a document
        that is changed is not as in `loaded`, or if another commit has used an admission token
        since `admission_token` was taken.
        """
        ...

    def kept_machines(self) -> tuple[LoadedSet, ...]:
        """Return the machine sets that are kept, in the order of their holders' ends."""
        ...

    def count_ready(self, job_id: str, attempt: int, floor: int) -> int:
        """Return how many replicas of the attempt whose VM generations are not below the floor have
        ever been ready.
        """
        ...

    def count_replicas(self, job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        """Return how many replicas of the attempt are in one of these states."""
        ...

    def count_ready_for(self, job_id: str, round_key: str, floor: int) -> int:
        """Return how many members whose VM generations are not below the floor are ready for this
        round.
        """
        ...

    def expire_history(self, job_id: str, at: datetime) -> None:
        """Let the job's ledger entries and replicas be deleted after `at`. Idempotent.

        They may still be read for some time after it. The job itself stays, because its id stays
        used.
        """
        ...


class Ledgers(Protocol):
    """The ledger entries of jobs, and which of their effects are not confirmed."""

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        """Return the ledger entry with this key."""
        ...

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        """Return all ledger entries of the job in the order of their commits."""
        ...

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        """Return the job's ledger entries with `at` not before `moment`, in the order of their
        commits.
        """
        ...

    def round_ends(self, job_id: str, round_key: str) -> tuple[End, ...]:
        """Return the first `ENDS_READ` ends of members in this round (`rules.evidence.round_key`),
        by rank and time.
        """
        ...

    def losses_after(self, job_id: str, round_key: str, entry_key: str) -> tuple[End, ...]:
        """Return the losses of this round, or of this hold, that were committed after this entry.

        `round_key`: that of the round, or of the time before it in which its members hold.

        Only losses that were reported at most `COMMIT_MAX` before the entry count. The first
        `LOSSES_READ` are returned, in the order of their reports; none if there is no such entry.
        """
        ...

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        """Return the keys of the job's ledger entries whose effects have not been confirmed."""
        ...

    def count_pending(self, job_id: str) -> int:
        """Return how many of the job's ledger entries have unconfirmed effects. One read for each
        thousand.
        """
        ...

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        """Return the keys of the job's unconfirmed ledger entries.

        `loaded` is the result of `load_attempt`.
        """
        ...

    def is_pending(self, job_id: str, key: str) -> bool:
        """Return whether the ledger entry exists and its effects have not been confirmed."""
        ...

    def mark_done(
        self,
        job_id: str,
        keys: Sequence[str],
        at: datetime,
        tokens: Mapping[str, object] | None = None,
    ) -> None:
        """Confirm the effects of these entries. Idempotent: the first time stays.

        With the `tokens` of `PendingEntries`, entries that have not changed since are not read
        again.
        """
        ...

    def jobs_with_pending(self) -> tuple[str, ...]:
        """Return the ids of all jobs that have unconfirmed effects."""
        ...

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        """Confirm that the entry's notification was published.

        Idempotent. Does nothing if the entry does not exist.
        """
        ...

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        """Return at most `limit` ledger entries of all jobs whose notifications have not been
        confirmed.

        Entries that this release cannot read are logged as errors and left out.
        """
        ...


class JobQueries(Protocol):
    """Facts about all jobs together."""

    def live_jobs(self) -> LiveJobs:
        """Return all jobs that have not ended, and the ids of those that cannot be read."""
        ...

    def live_pages(self, *, waiting: bool) -> Iterator[LiveJobs]:
        """Yield the jobs that have not ended in parts of at most `LIVE_PAGE`, by id.

        With `waiting` false, queued jobs are left out, and not read either: only admission passes
        decide about them. Queued tuning jobs are never left out. A job that is stored, admitted or
        ended in between may be in a part or not.
        """
        ...

    def overdue_waits(self, now: datetime) -> tuple[Job, ...]:
        """Return the queued jobs whose `maxWaitTime` is over, but for tuning jobs."""
        ...

    def admission_token(self) -> AdmissionToken:
        """Return the live jobs with the token that a commit needs to admit one of them."""
        ...

    def next_admission_token(self, token: AdmissionToken, job_id: str) -> AdmissionToken:
        """Return the token for the next admission, after the caller has admitted this job with
        `token`.

        Raises ConflictError if another job has been admitted since. The new token has the `jobs` of
        `token`.
        """
        ...

    def queue(self) -> AdmissionQueue:
        """Return the queue that was stored last; an empty one if there is none. One read."""
        ...

    def store_queue(self, queue: AdmissionQueue) -> None:
        """Store the queue that an admission pass has left."""
        ...

    def sweep_requests(self) -> SweepRequests:
        """Return what was noted last. One read."""
        ...

    def note_sweep_requests(self, requested_at: datetime) -> None:
        """Note that a sweep has published its requests."""
        ...

    def note_sweep_reached(self, reached_at: datetime) -> None:
        """Note the time of a request of a sweep that has been delivered."""
        ...

    def count_live(self) -> int:
        """Return the number of jobs that have not ended."""
        ...

    def recent_jobs(
        self, limit: int, after: JobPosition | None = None, only: JobFilter | None = None
    ) -> tuple[Job, ...]:
        """Return the newest jobs first, by descending id within one creation time.

        With `after`, return those that follow that position. The position may be that of a job that
        does not exist. `only`: those that match; None: all, also trials and deleted jobs. Fewer
        than `limit`: there are no others.
        """
        ...

    def failing_replicas(self, jobs: Sequence[Job]) -> Mapping[str, tuple[Replica, ...]]:
        """Return the replicas of the current attempts of these jobs that have failed several times
        in a row (`FailureRow.is_shown`), by job id.

        Jobs that have none are left out. One query for `FAILING_JOBS` jobs reads these replicas and
        nothing else. Of a job with more than `FAILING_READ`, some may be left out, but never all.
        """
        ...

    def count_by_state(self, label: Label | None = None) -> Mapping[JobState, int]:
        """Return how many jobs are in each state, including zeros; with `label`, only jobs that
        have it.

        Trials of tuning jobs and deleted jobs do not count.
        """
        ...

    def count_created_since(self, moment: datetime, *, through_api: bool) -> int:
        """Return how many jobs were created at `moment` or later, through the API or by messages
        and uploads.

        Trials of tuning jobs do not count.
        """
        ...

    def owner_of_vm(self, name: str) -> VmOwner | None:
        """Return the job, ended or not, that has a replica whose VM has this name.

        A job that cannot be read owns every VM that is named after it. Of a job with a machine set,
        the set's holder decides about every VM of that name. A job that has taken the machines of
        another one has created none: VMs of its name were created before the database was restored.
        """
        ...


class Leases(Protocol):
    """The right of one delivery to work on a job while others leave it alone."""

    def take_lease(
        self, name: str, now: datetime, expires_at: datetime, holder: str = ""
    ) -> Lease | None:
        """Take the lease until `expires_at`.

        None: another holder has it, and it has not expired at `now`.

        `holder` is the message id of the delivery that takes the lease. Pub/Sub redelivers a
        message under the same id after the death of the process that handled it, so the same holder
        may take its own lease again. Empty: unknown.
        """
        ...

    def extend_lease(self, lease: Lease, expires_at: datetime) -> Lease | None:
        """Return the lease with another expiry time.

        None: it had expired, and another holder has taken it.
        """
        ...

    def release_lease(self, lease: Lease) -> None:
        """Release the lease. Does nothing if another has taken it."""
        ...


class Incidents(Protocol):
    """What happened outside any job: rejections, orphans, and the outcomes of requests for VMs."""

    def reject(self, rejection: Rejection) -> None:
        """Store the rejection. Idempotent by its key."""
        ...

    def rejections(self, limit: int = 100, source: str | None = None) -> tuple[Rejection, ...]:
        """Return at most `limit` rejections: the latest of all sources, the newest first; or with
        `source`, those of one source, in any order.

        There is always a limit, because everyone who may submit jobs can add rejections.
        """
        ...

    def report_orphan(self, orphan: Orphan) -> None:
        """Store the orphan. Idempotent by instance id: the first report stays."""
        ...

    def orphans(self) -> tuple[Orphan, ...]:
        """Return all orphans that were reported and not forgotten."""
        ...

    def forget_orphan(self, instance_id: str) -> None:
        """Delete the report of the orphan. Idempotent."""
        ...

    def note_outcome(self, outcome: Outcome) -> None:
        """Store the outcome. Only the latest one of each zone and kind of machine is kept."""
        ...

    def outcomes(self, keys: Sequence[tuple[str, str]]) -> tuple[Outcome, ...]:
        """Return the stored outcomes with these keys (`Outcome.key`)."""
        ...

    def stockouts(self, since: datetime) -> tuple[Outcome, ...]:
        """Return the stored outcomes of `since` and later that are stockouts."""
        ...


class Store(States, Ledgers, JobQueries, Leases, Incidents, Protocol):
    """The only durable state. All methods raise TemporaryError for transient errors.

    A read sees every commit that returned before it started. A function that needs one part of it
    names that part.
    """
