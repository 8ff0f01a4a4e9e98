"""The Store port in memory: one lock for all jobs, and versions of documents as tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from trainmaster.core.events import End
from trainmaster.core.ledger import LedgerEntry, ends_of
from trainmaster.core.model.job import Job, JobState, Label, State
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm_names import job_hash, vm_name
from trainmaster.core.rules.admission_queue import AdmissionQueue
from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError
from trainmaster.memory.incidents import Incidents
from trainmaster.memory.leases import Leases
from trainmaster.memory.stored_job import StoredJob
from trainmaster.ports import (
    AdmissionToken,
    AlreadyRecordedError,
    JobFilter,
    JobPosition,
    LiveJobs,
    Loaded,
    PendingEntries,
)

JOB = "job"


class MemoryStore(Incidents, Leases):
    """See `trainmaster.ports.Store`. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, StoredJob] = {}
        self._ids_by_hash: defaultdict[str, list[str]] = defaultdict(list)
        """Hash in the names of a job's VMs → ids of the jobs with this hash."""
        self._admissions = 0
        self._queue = AdmissionQueue()
        self._commits = 0

    def copy(self) -> MemoryStore:
        """Return an independent store with the same content, for a search that branches."""
        with self._lock:
            other = MemoryStore()
            other.copy_incidents(self)
            other._jobs = {job_id: stored.copy() for job_id, stored in self._jobs.items()}
            other._ids_by_hash.update({key: list(ids) for key, ids in self._ids_by_hash.items()})
            other._admissions, other._commits, other._queue = (
                self._admissions,
                self._commits,
                self._queue,
            )
            other.copy_leases(self)
            return other

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            own = stored.replicas.get(replica or "")
            return _loaded(State(stored.job, (own,) if own else ()))

    def load_attempt(self, job_id: str) -> Loaded | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            # The replicas were written in the order of the plan, and a dict keeps that order.
            replicas = tuple(
                replica
                for replica in stored.replicas.values()
                if replica.attempt == stored.job.attempt
            )
            return replace(_loaded(State(stored.job, replicas, whole=True)), read_at=self._commits)

    def commit(
        self,
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        admission_token: AdmissionToken | None = None,
    ) -> None:
        with self._lock:
            stored = self._jobs.get(entry.job_id)
            if stored is not None and entry.key in stored.ledger:
                raise AlreadyRecordedError(entry.key)
            if admission_token is not None and admission_token.token != self._admissions:
                raise ConflictError("another job was admitted since the admission token was taken")
            tokens = loaded.tokens if loaded else {}
            if change.job is not None:
                _check(stored.job.version if stored else None, tokens.get(JOB), entry.job_id)
            for replica in change.replicas:
                current = stored.replicas.get(replica.key) if stored else None
                _check(current.version if current else None, tokens.get(replica.key), replica.key)
            if stored is None:
                if change.job is None:
                    raise ConflictError(f"there is no job {entry.job_id}")
                stored = self._jobs[entry.job_id] = StoredJob(change.job)
                self._ids_by_hash[job_hash(entry.job_id)].append(entry.job_id)
            stored.job = change.job or stored.job
            stored.replicas.update({replica.key: replica for replica in change.replicas})
            self._commits += 1
            stored.ledger[entry.key], stored.commits[entry.key] = entry, self._commits
            if entry.is_pending:
                stored.pending[entry.key] = None
            self._admissions += admission_token is not None

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            return stored.ledger.get(key) if stored else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        with self._lock:
            stored = self._jobs.get(job_id)
            return tuple(stored.ledger.values()) if stored else ()

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        return tuple(entry for entry in self.ledger(job_id) if entry.at >= moment)

    def round_ends(self, job_id: str, round_key: str) -> tuple[End, ...]:
        entries = [entry for entry in self.ledger(job_id) if entry.round == round_key]
        return ends_of(sorted(entries, key=lambda entry: (entry.rank, entry.ended_at))[:ENDS_READ])

    def losses_after(self, job_id: str, round_key: str, entry_key: str) -> tuple[End, ...]:
        commits = self._jobs[job_id].commits if job_id in self._jobs else {}
        if entry_key not in commits:
            return ()
        reports = (entry for entry in self.ledger(job_id) if entry.round == round_key)
        return ends_of(entry for entry in reports if commits[entry.key] > commits[entry_key])

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._jobs[job_id].pending) if job_id in self._jobs else ()

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        job_id = loaded.state.job.job_id
        with self._lock:
            keys, commits = self.pending_keys(job_id), self._jobs[job_id].commits
            included = tuple(key for key in keys if commits[key] <= loaded.read_at)
            later = tuple(key for key in keys if commits[key] > loaded.read_at)
        return PendingEntries(included, later)

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        with self._lock:
            stored = self._jobs.get(job_id)
            for key in keys:
                if stored and key in stored.pending:
                    del stored.pending[key]
                    stored.ledger[key] = replace(stored.ledger[key], done_at=at)

    def is_pending(self, job_id: str, key: str) -> bool:
        return key in self.pending_keys(job_id)

    def jobs_with_pending(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(job_id for job_id, stored in self._jobs.items() if stored.pending)

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored and (entry := stored.ledger.get(key)):
                stored.ledger[key] = replace(entry, notified_at=at)

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        with self._lock:
            entries = (
                entry
                for job_id in self._jobs
                for entry in self.ledger(job_id)
                if entry.is_notification_pending
            )
            return tuple(islice(entries, limit))

    def live_jobs(self) -> LiveJobs:
        with self._lock:
            return LiveJobs(
                tuple(
                    stored.job for stored in self._jobs.values() if not stored.job.state.is_terminal
                )
            )

    def queue(self) -> AdmissionQueue:
        return self._queue

    def store_queue(self, queue: AdmissionQueue) -> None:
        self._queue = queue

    def admission_token(self) -> AdmissionToken:
        with self._lock:
            return AdmissionToken(self._admissions, self.live_jobs())

    def next_admission_token(self, token: AdmissionToken, job_id: str) -> AdmissionToken:
        with self._lock:
            if not isinstance(token.token, int) or self._admissions != token.token + 1:
                raise ConflictError(f"another job was admitted after {job_id}")
            return replace(token, token=self._admissions)

    def count_live(self) -> int:
        return len(self.live_jobs().jobs)

    def recent_jobs(
        self, limit: int, after: JobPosition | None = None, only: JobFilter | None = None
    ) -> tuple[Job, ...]:
        with self._lock:
            jobs = sorted(
                (stored.job for stored in self._jobs.values()), key=_position, reverse=True
            )
        if after is not None:
            jobs = [job for job in jobs if _position(job) < (after.created_at, after.job_id)]
        if only is not None:
            jobs = [job for job in jobs if only.matches(job)]
        return tuple(jobs[:limit])

    def count_by_state(self, label: Label | None = None) -> dict[JobState, int]:
        with self._lock:
            jobs = [stored.job for stored in self._jobs.values()]
        listed = [job for job in jobs if job.deleted_at is None and job.trial_of is None]
        counts = Counter(job.state for job in listed if label is None or label in job.labels)
        return {state: counts[state] for state in JobState}

    def count_created_since(self, moment: datetime, *, through_api: bool) -> int:
        with self._lock:
            submitted = [
                stored.job for stored in self._jobs.values() if stored.job.trial_of is None
            ]
            return sum(
                job.created_at >= moment for job in submitted if job.through_api is through_api
            )

    def count_ready(self, job_id: str, attempt: int, floor: int) -> int:
        replicas = self._replicas(job_id)
        return sum(
            r.attempt == attempt and r.ever_ready and r.vm_generation >= floor for r in replicas
        )

    def count_replicas(self, job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        return sum(
            replica.attempt == attempt and replica.state in states
            for replica in self._replicas(job_id)
        )

    def job_of_vm(self, name: str) -> str | None:
        with self._lock:
            vm_hash = name.rsplit("-", 3)[-3:][
                0
            ]  # the hash, the task type and the index end the name
            plans = {
                job_id: self._jobs[job_id].job.plan for job_id in self._ids_by_hash.get(vm_hash, ())
            }
            owners = (
                key
                for key, plan in plans.items()
                if name in (vm_name(key, one) for one in plan.replica_ids)
            )
            return next(owners, None)

    def count_ready_for(self, job_id: str, round_key: str, floor: int) -> int:
        return sum(
            r.ready_for == round_key and r.vm_generation >= floor for r in self._replicas(job_id)
        )

    def _replicas(self, job_id: str) -> tuple[Replica, ...]:
        with self._lock:
            return tuple(self._jobs[job_id].replicas.values()) if job_id in self._jobs else ()

    def expire_history(self, job_id: str, at: datetime) -> None:
        """Nothing outlives the process, so nothing is deleted before its end."""


def _position(job: Job) -> tuple[datetime, str]:
    return job.created_at, job.job_id


def _loaded(state: State) -> Loaded:
    tokens: dict[str, object] = {replica.key: replica.version for replica in state.replicas}
    return Loaded(recall(state), {JOB: state.job.version, **tokens})


def _check(current: int | None, expected: object, document: str) -> None:
    if current != expected:
        raise ConflictError(f"{document} has changed since it was read")
