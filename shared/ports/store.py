"""Stored state: jobs, replicas, ledgers, and what concerns all jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, State
from shared.core.reconcile.zone_order import Stockout
from shared.core.transitions.change import Change


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state as it was read, with the preconditions for writing it."""

    state: State
    tokens: Mapping[str, object]
    """The adapter's version of each document that was read. Keys: `job`, and the keys of replicas."""


@dataclass(frozen=True, slots=True)
class JobPosition:
    """Position of a job in the job list, which is ordered by creation time, then by id."""

    created_at: datetime
    job_id: str


@dataclass(frozen=True, slots=True)
class AdmissionToken:
    """The right to admit one job, decided on the live jobs as they were when the token was taken.

    A commit that passes the token succeeds only if no other job was admitted in between.
    """

    token: object
    """The adapter's version of the admission document."""
    jobs: tuple[Job, ...]
    """All jobs that had not ended when the token was taken."""


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
    """Compute's numeric id, which is never used again."""
    name: str
    zone: str
    label: str
    """Value of the VM's job label."""
    first_seen_at: datetime


class AlreadyRecordedError(Exception):
    """The ledger already has an entry with this key: the event was judged before.

    It may have been judged by the same process, if the response to its commit was lost.
    """


class Store(Protocol):
    """The only durable state. All methods raise TemporaryError for failures that may pass.

    A read sees every commit that returned before it started.
    """

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        """Return the job, and the replica with the key `replica` if there is one. None: there is no such job.

        With `lost_peers`, include the replicas of the same attempt that have ever lost a VM.
        """
        ...

    def load_attempt(self, job_id: str) -> Loaded | None:
        """Return the job and all replicas of its current attempt. None: there is no such job."""
        ...

    def commit(
        self, loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        """Write the ledger entry and the changed documents in one atomic step, or nothing.

        Raises AlreadyRecordedError if an entry of that key exists, and ConflictError if a changed document is not as
        in `loaded`, or if another commit has used an admission token since `admission_token` was taken.
        """
        ...

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        """Return the ledger entry with this key."""
        ...

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        """Return all ledger entries of the job in the order of their commits."""
        ...

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        """Return the keys of the job's ledger entries whose effects have not been confirmed."""
        ...

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        """Confirm the effects of these entries. Idempotent: the first time stays."""
        ...

    def jobs_with_pending(self) -> tuple[str, ...]:
        """Return the ids of all jobs that have unconfirmed effects."""
        ...

    def live_jobs(self) -> tuple[Job, ...]:
        """Return all jobs that have not ended."""
        ...

    def admission_token(self) -> AdmissionToken:
        """Return the live jobs with the token that a commit needs to admit one of them."""
        ...

    def recent_jobs(self, limit: int, after: JobPosition | None = None) -> tuple[Job, ...]:
        """Return the newest jobs first, by descending id within one creation time.

        With `after`, return those that follow that position. The position may be that of a job that does not exist.
        """
        ...

    def count_created_since(self, moment: datetime) -> int:
        """Return how many jobs were created at `moment` or later. Trials of tuning jobs do not count."""
        ...

    def count_ready(self, job_id: str, attempt: int) -> int:
        """Return how many replicas of the attempt have ever been ready."""
        ...

    def reject(self, rejection: Rejection) -> None:
        """Store the rejection. Idempotent by its key."""
        ...

    def rejections(self) -> tuple[Rejection, ...]:
        """Return all rejections."""
        ...

    def job_of_vm(self, name: str) -> str | None:
        """Return the id of the job, ended or not, that has a replica whose VM has this name."""
        ...

    def note_stockout(self, stockout: Stockout) -> None:
        """Store the stockout. Only the latest one of each zone and kind of machine is kept."""
        ...

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        """Return the stored stockouts of `since` and later."""
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
