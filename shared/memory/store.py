"""The Store in memory: one lock, documents with versions as tokens, entries in the order of their commits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, Replica, State
from shared.core.reconcile.plan import vm_name
from shared.core.reconcile.zone_order import Stockout
from shared.errors import ConflictError
from shared.ports import AdmissionToken, AlreadyRecordedError, JobPlace, Loaded, Orphan, Rejection

JOB = "job"


@dataclass
class _Stored:
    job: Job
    replicas: dict[str, Replica] = field(default_factory=dict)
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)


class MemoryStore:
    """See `shared.ports.Store`. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._jobs: dict[str, _Stored] = {}
        self._rejections: dict[str, Rejection] = {}
        self._orphans: dict[str, Orphan] = {}
        self._stockouts: dict[tuple[str, str], Stockout] = {}
        self._admissions = 0

    def copy(self) -> MemoryStore:
        """Another one that holds the same and goes its own way: for searches that branch."""
        with self._lock:
            other = MemoryStore()
            other._jobs = {
                job_id: _Stored(each.job, dict(each.replicas), dict(each.ledger)) for job_id, each in self._jobs.items()
            }
            other._rejections, other._orphans = dict(self._rejections), dict(self._orphans)
            other._stockouts = dict(self._stockouts)
            other._admissions = self._admissions
            return other

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            own = stored.replicas.get(replica or "")
            replicas = [own] if own else []
            if own and lost_peers:
                replicas += [each for each in stored.replicas.values() if _is_lost_peer(each, own)]
            return _loaded(State(stored.job, tuple(replicas)))

    def load_attempt(self, job_id: str) -> Loaded | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            # In the order of the plan's replicas, which is the one they were written in.
            replicas = tuple(each for each in stored.replicas.values() if each.attempt == stored.job.attempt)
            return _loaded(State(stored.job, replicas, whole=True))

    def commit(
        self, loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        with self._lock:
            stored = self._jobs.get(entry.job_id)
            if stored is not None and entry.key in stored.ledger:
                raise AlreadyRecordedError(entry.key)
            if admission_token is not None and admission_token.token != self._admissions:
                raise ConflictError("another job was admitted meanwhile")
            tokens = loaded.tokens if loaded else {}
            if change.job is not None:
                _check(stored.job.version if stored else None, tokens.get(JOB), entry.job_id)
            for replica in change.replicas:
                there = stored.replicas.get(replica.key) if stored else None
                _check(there.version if there else None, tokens.get(replica.key), replica.key)
            if stored is None:
                if change.job is None:
                    raise ConflictError(f"{entry.job_id}: no such job")
                stored = self._jobs[entry.job_id] = _Stored(change.job)
            stored.job = change.job or stored.job
            stored.replicas.update({replica.key: replica for replica in change.replicas})
            stored.ledger[entry.key] = entry
            self._admissions += admission_token is not None

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        with self._lock:
            stored = self._jobs.get(job_id)
            return stored.ledger.get(key) if stored else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        with self._lock:
            stored = self._jobs.get(job_id)
            return tuple(stored.ledger.values()) if stored else ()

    def pending(self, job_id: str) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.ledger(job_id) if entry.is_pending)

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        with self._lock:
            stored = self._jobs.get(job_id)
            for key in keys:
                if stored and (entry := stored.ledger.get(key)) and entry.is_pending:
                    stored.ledger[key] = replace(entry, done_at=at)

    def jobs_with_pending(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(job_id for job_id in self._jobs if self.pending(job_id))

    def live_jobs(self) -> tuple[Job, ...]:
        with self._lock:
            return tuple(each.job for each in self._jobs.values() if not each.job.state.is_terminal)

    def admission_token(self) -> AdmissionToken:
        with self._lock:
            return AdmissionToken(self._admissions, self.live_jobs())

    def recent_jobs(self, limit: int, after: JobPlace | None = None) -> tuple[Job, ...]:
        with self._lock:
            jobs = sorted((each.job for each in self._jobs.values()), key=_place, reverse=True)
        if after is not None:
            jobs = [job for job in jobs if _place(job) < (after.created_at, after.job_id)]
        return tuple(jobs[:limit])

    def created_since(self, moment: datetime) -> int:
        with self._lock:
            return sum(each.job.created_at >= moment for each in self._jobs.values() if each.job.trial_of is None)

    def count_ready(self, job_id: str, attempt: int) -> int:
        with self._lock:
            replicas = self._jobs[job_id].replicas.values() if job_id in self._jobs else ()
            return sum(each.attempt == attempt and each.ever_ready for each in replicas)

    def reject(self, rejection: Rejection) -> None:
        with self._lock:
            self._rejections.setdefault(rejection.key, rejection)

    def rejections(self) -> tuple[Rejection, ...]:
        with self._lock:
            return tuple(self._rejections.values())

    def job_of_vm(self, name: str) -> str | None:
        with self._lock:
            return next((job_id for job_id, each in self._jobs.items() if _has_vm(each.job, name)), None)

    def note_stockout(self, stockout: Stockout) -> None:
        with self._lock:
            key = (stockout.zone, stockout.kind)
            before = self._stockouts.get(key)
            if before is None or before.at < stockout.at:
                self._stockouts[key] = stockout

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        with self._lock:
            return tuple(each for each in self._stockouts.values() if each.at >= since)

    def report_orphan(self, orphan: Orphan) -> None:
        with self._lock:
            self._orphans.setdefault(orphan.instance_id, orphan)

    def orphans(self) -> tuple[Orphan, ...]:
        with self._lock:
            return tuple(self._orphans.values())

    def forget_orphan(self, instance_id: str) -> None:
        with self._lock:
            self._orphans.pop(instance_id, None)


def _place(job: Job) -> tuple[datetime, str]:
    return job.created_at, job.job_id


def _has_vm(job: Job, name: str) -> bool:
    return any(vm_name(job.job_id, replica_id) == name for replica_id in job.plan.replica_ids)


def _is_lost_peer(peer: Replica, own: Replica) -> bool:
    return peer.attempt == own.attempt and peer.key != own.key and peer.ever_lost


def _loaded(state: State) -> Loaded:
    tokens: dict[str, object] = {replica.key: replica.version for replica in state.replicas}
    return Loaded(state, {JOB: state.job.version, **tokens})


def _check(there: int | None, expected: object, what: str) -> None:
    if there != expected:
        raise ConflictError(f"{what} was written meanwhile")
