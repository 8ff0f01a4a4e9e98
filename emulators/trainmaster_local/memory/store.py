"""The Store port in memory, for tests, the simulator and a stack without emulators.

It keeps the promises of the Firestore adapter, which the same contract tests check: what is read
comes with tokens, the versions of the documents, and a commit fails if one of the documents that it
changes has another version by then. One lock makes each call atomic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from trainmaster.core.events import End
from trainmaster.core.ledger import LedgerEntry, ends_of
from trainmaster.core.model.floor import is_below_floor
from trainmaster.core.model.job import Job, JobState, Label, State
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm_names import is_vm_of, job_hash, vm_name
from trainmaster.core.rules.admission_queue import AdmissionQueue, waits_for_admission
from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.core.rules.user_requests import end_of_wait
from trainmaster.core.transitions.change import Change
from trainmaster.errors import ConflictError
from trainmaster.ports import (
    MACHINES,
    AdmissionToken,
    AlreadyRecordedError,
    JobFilter,
    JobPosition,
    LiveJobs,
    Loaded,
    LoadedSet,
    PendingEntries,
    SweepRequests,
    VmOwner,
)
from trainmaster.ports.store import LIVE_PAGE
from trainmaster_local.memory.incidents import Incidents
from trainmaster_local.memory.leases import Leases
from trainmaster_local.memory.stored_job import StoredJob

JOB = "job"
"""Key of the job's version among the tokens.

The version of a replica has the replica's `key`, and that of the machine set `MACHINES`.
"""


class MemoryStore(Incidents, Leases):
    """Adapter of `trainmaster.ports.Store`, whose docstrings are the contract. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: dict[str, StoredJob] = {}
        self._ids_by_hash: defaultdict[str, list[str]] = defaultdict(list)
        """Hash in the names of a job's VMs → ids of the jobs with this hash."""
        self._machine_sets: dict[str, MachineSet] = {}
        self._admissions = 0
        """Commits that used an admission token."""
        self._queue = AdmissionQueue()
        self._sweep_requests = SweepRequests()
        self._commits = 0
        """Commits of ledger entries."""

    def copy(self) -> MemoryStore:
        """Return an independent store with the same content, for a search that branches."""
        with self._lock:
            other = MemoryStore()
            other.copy_incidents(self)
            other._jobs = {job_id: stored.copy() for job_id, stored in self._jobs.items()}
            other._ids_by_hash.update({key: list(ids) for key, ids in self._ids_by_hash.items()})
            other._machine_sets = dict(self._machine_sets)
            other._admissions = self._admissions
            other._commits = self._commits
            other._queue = self._queue
            other._sweep_requests = self._sweep_requests
            other.copy_leases(self)
            return other

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        """Return the job, and the replica with this key if there is one; None: there is no such
        job.
        """
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            found = stored.replicas.get(replica or "")
            return self._loaded(State(stored.job, (found,) if found else ()))

    def load_attempt(self, job_id: str, *, if_needed: bool = False) -> Loaded | None:
        """Return the job and all replicas of its attempt; None: there is no such job.

        `if_needed`: without the replicas if no decision about this job needs them.
        """
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None:
                return None
            if if_needed and not stored.job.needs_replicas:
                return replace(self._loaded(State(stored.job)), read_at=self._commits)
            # The replicas were written in the order of the plan, and a dict keeps that order.
            replicas = tuple(
                replica
                for replica in stored.replicas.values()
                if replica.attempt == stored.job.attempt
            )
            return replace(
                self._loaded(State(stored.job, replicas, whole=True)), read_at=self._commits
            )

    def commit(
        self,
        loaded: Loaded | None,
        entry: LedgerEntry,
        change: Change,
        admission_token: AdmissionToken | None = None,
    ) -> None:
        """Write the ledger entry and the changed documents, or nothing.

        Raises AlreadyRecordedError if there is an entry of this key, and ConflictError if a
        document is not as it was loaded, or if another commit has used an admission token since.
        """
        with self._lock:
            stored = self._jobs.get(entry.job_id)
            if stored is not None and entry.key in stored.ledger:
                raise AlreadyRecordedError(entry.key)
            if admission_token is not None and admission_token.token != self._admissions:
                raise ConflictError("another job was admitted since the admission token was taken")
            tokens = loaded.tokens if loaded else {}
            _check_versions(stored, change, tokens, entry.job_id)
            self._check_machines(change.machines, tokens)
            if stored is None:
                stored = self._add_job(change, entry.job_id)
            self._write(stored, entry, change)
            if admission_token is not None:
                self._admissions += 1

    def _check_machines(self, machines: MachineSet | None, tokens: Mapping[str, object]) -> None:
        """Raise ConflictError if a machine set that changes is not as it was read."""
        if machines is None:
            return
        current = self._machine_sets.get(machines.set_id)
        _check_version(current.version if current else None, tokens.get(MACHINES), machines.set_id)

    def _add_job(self, change: Change, job_id: str) -> StoredJob:
        """Store the first document of a job. Raises ConflictError if the change has none."""
        if change.job is None:
            raise ConflictError(f"there is no job {job_id}")
        stored = StoredJob(change.job)
        self._jobs[job_id] = stored
        self._ids_by_hash[job_hash(job_id)].append(job_id)
        return stored

    def _write(self, stored: StoredJob, entry: LedgerEntry, change: Change) -> None:
        """Write everything that a commit changes, after all of its checks."""
        if change.machines is not None:
            self._machine_sets[change.machines.set_id] = change.machines
        stored.job = change.job or stored.job
        stored.replicas.update({replica.key: replica for replica in change.replicas})
        self._commits += 1
        stored.ledger[entry.key] = entry
        stored.commits[entry.key] = self._commits
        if entry.is_pending:
            stored.pending[entry.key] = None

    def kept_machines(self) -> tuple[LoadedSet, ...]:
        """Return the machine sets that are kept, in the order of their holders' ends."""
        with self._lock:
            kept = [machines for machines in self._machine_sets.values() if machines.is_kept]
        kept.sort(key=lambda machines: (machines.ended_at, machines.set_id))
        return tuple(LoadedSet(machines, machines.version) for machines in kept)

    def _loaded(self, state: State) -> Loaded:
        """Return what was read, with the job's machine set and the version of each document."""
        tokens: dict[str, object] = {replica.key: replica.version for replica in state.replicas}
        machines = None
        if state.job.machines is not None:
            machines = self._machine_sets.get(state.job.set_id)
        if machines is not None:
            state = replace(state, machine_set=machines)
            tokens[MACHINES] = machines.version
        return Loaded(recall(state), {JOB: state.job.version, **tokens})

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        """Return the ledger entry with this key."""
        with self._lock:
            stored = self._jobs.get(job_id)
            return stored.ledger.get(key) if stored else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        """Return all ledger entries of the job in the order of their commits."""
        with self._lock:
            stored = self._jobs.get(job_id)
            return tuple(stored.ledger.values()) if stored else ()

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        """Return the job's ledger entries with `at` not before `moment`, in the order of their
        commits.
        """
        return tuple(entry for entry in self.ledger(job_id) if entry.at >= moment)

    def round_ends(self, job_id: str, round_key: str) -> tuple[End, ...]:
        """Return the first `ENDS_READ` ends of members in this round (`rules.evidence`), by rank
        and time.
        """
        entries = [entry for entry in self.ledger(job_id) if entry.round == round_key]
        entries.sort(key=lambda entry: (entry.rank, entry.ended_at))
        return ends_of(entries[:ENDS_READ])

    def losses_after(self, job_id: str, round_key: str, entry_key: str) -> tuple[End, ...]:
        """Return the ends in this round that were committed after the entry with `entry_key`.

        The port limits how many losses are read, and how old. Here a read costs nothing, so all
        are read.
        """
        with self._lock:
            stored = self._jobs.get(job_id)
            if stored is None or entry_key not in stored.commits:
                return ()
            begin = stored.commits[entry_key]
            later = [entry for key, entry in stored.ledger.items() if stored.commits[key] > begin]
        return ends_of(entry for entry in later if entry.round == round_key)

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        """Return the keys of the job's ledger entries whose effects have not been confirmed."""
        with self._lock:
            return tuple(self._jobs[job_id].pending) if job_id in self._jobs else ()

    def count_pending(self, job_id: str) -> int:
        """Return how many of the job's ledger entries have unconfirmed effects."""
        return len(self.pending_keys(job_id))

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        """Return the keys of the job's unconfirmed ledger entries: those that the loaded state
        includes, and later ones. `loaded` is the result of `load_attempt`.
        """
        job_id = loaded.state.job.job_id
        with self._lock:
            keys = self.pending_keys(job_id)
            commits = self._jobs[job_id].commits
            included = tuple(key for key in keys if commits[key] <= loaded.read_at)
            later = tuple(key for key in keys if commits[key] > loaded.read_at)
        return PendingEntries(included, later, dict.fromkeys(keys))

    def mark_done(
        self,
        job_id: str,
        keys: Sequence[str],
        at: datetime,
        tokens: Mapping[str, object] | None = None,
    ) -> None:
        """Confirm the effects of these entries. Idempotent: the first time stays."""
        with self._lock:
            stored = self._jobs.get(job_id)
            for key in keys:
                if stored and key in stored.pending:
                    del stored.pending[key]
                    stored.ledger[key] = replace(stored.ledger[key], done_at=at)

    def is_pending(self, job_id: str, key: str) -> bool:
        """Return whether the ledger entry exists and its effects have not been confirmed."""
        return key in self.pending_keys(job_id)

    def jobs_with_pending(self) -> tuple[str, ...]:
        """Return the ids of all jobs that have unconfirmed effects."""
        with self._lock:
            return tuple(job_id for job_id, stored in self._jobs.items() if stored.pending)

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        """Confirm that the entry's notification was published."""
        with self._lock:
            entry = self.entry(job_id, key)
            if entry is not None:
                self._jobs[job_id].ledger[key] = replace(entry, notified_at=at)

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        """Return at most `limit` ledger entries of all jobs whose notifications have not been
        confirmed.
        """
        with self._lock:
            entries: list[LedgerEntry] = []
            for stored in self._jobs.values():
                entries.extend(stored.ledger.values())
        open_entries = [entry for entry in entries if entry.is_notification_pending]
        return tuple(open_entries[:limit])

    def live_jobs(self) -> LiveJobs:
        """Return all jobs that have not ended, and the ids of those that cannot be read."""
        with self._lock:
            jobs = [stored.job for stored in self._jobs.values()]
        return LiveJobs(tuple(job for job in jobs if not job.state.is_terminal))

    def live_pages(self, *, waiting: bool) -> Iterator[LiveJobs]:
        """Yield the jobs that have not ended in parts of at most `LIVE_PAGE`, by id."""
        jobs = sorted(self.live_jobs().jobs, key=lambda job: job.job_id)
        wanted = [job for job in jobs if waiting or not waits_for_admission(job)]
        for start in range(0, len(wanted), LIVE_PAGE):
            yield LiveJobs(tuple(wanted[start : start + LIVE_PAGE]))

    def overdue_waits(self, now: datetime) -> tuple[Job, ...]:
        """Return the queued jobs whose `maxWaitTime` is over, but for tuning jobs."""
        waiting = [job for job in self.live_jobs().jobs if waits_for_admission(job)]
        ends = [(job, end_of_wait(job)) for job in waiting]
        return tuple(job for job, ends_at in ends if ends_at is not None and ends_at <= now)

    def queue(self) -> AdmissionQueue:
        """Return the queue that was stored last; an empty one if there is none."""
        return self._queue

    def store_queue(self, queue: AdmissionQueue) -> None:
        """Store the queue that an admission pass has left."""
        self._queue = queue

    def sweep_requests(self) -> SweepRequests:
        """Return the times that the two methods below have noted."""
        return self._sweep_requests

    def note_sweep_requests(self, requested_at: datetime) -> None:
        """Note that a sweep has published its requests."""
        with self._lock:
            self._sweep_requests = replace(self._sweep_requests, requested_at=requested_at)

    def note_sweep_reached(self, reached_at: datetime) -> None:
        """Note the time of a request of a sweep that has been delivered."""
        with self._lock:
            self._sweep_requests = replace(self._sweep_requests, reached_at=reached_at)

    def admission_token(self) -> AdmissionToken:
        """Return the live jobs with the token that a commit needs to admit one of them."""
        with self._lock:
            return AdmissionToken(self._admissions, self.live_jobs())

    def next_admission_token(self, token: AdmissionToken, job_id: str) -> AdmissionToken:
        """Return the token for the next admission, after the caller has admitted this job with
        `token`.

        Raises ConflictError if another job has been admitted since. The new token has the `jobs` of
        `token`.
        """
        with self._lock:
            if not isinstance(token.token, int) or self._admissions != token.token + 1:
                raise ConflictError(f"another job was admitted after {job_id}")
            return replace(token, token=self._admissions)

    def count_live(self) -> int:
        """Return the number of jobs that have not ended."""
        return len(self.live_jobs().jobs)

    def recent_jobs(
        self, limit: int, after: JobPosition | None = None, only: JobFilter | None = None
    ) -> tuple[Job, ...]:
        """Return the newest jobs first, by descending id within one creation time."""
        with self._lock:
            jobs = [stored.job for stored in self._jobs.values()]
        jobs.sort(key=_position, reverse=True)
        if after is not None:
            jobs = [job for job in jobs if _position(job) < (after.created_at, after.job_id)]
        if only is not None:
            jobs = [job for job in jobs if only.matches(job)]
        return tuple(jobs[:limit])

    def failing_replicas(self, jobs: Sequence[Job]) -> dict[str, tuple[Replica, ...]]:
        """Return the replicas of the current attempts of these jobs that have failed several times
        in a row (`FailureRow.is_shown`), by job id.
        """
        with self._lock:
            found = {}
            for job in jobs:
                stored = self._jobs.get(job.job_id)
                replicas = tuple(
                    replica
                    for replica in (stored.replicas.values() if stored else ())
                    if _is_failing(job, replica)
                )
                if replicas:
                    found[job.job_id] = replicas
        return found

    def count_by_state(self, label: Label | None = None) -> dict[JobState, int]:
        """Return how many jobs are in each state, including zeros; with `label`, only jobs that
        have it.
        """
        with self._lock:
            jobs = [stored.job for stored in self._jobs.values()]
        listed = [job for job in jobs if job.deleted_at is None and job.trial_of is None]
        counts = Counter(job.state for job in listed if label is None or label in job.labels)
        return {state: counts[state] for state in JobState}

    def count_created_since(self, moment: datetime, *, through_api: bool) -> int:
        """Return how many jobs were created at `moment` or later, through the API or by messages
        and uploads.
        """
        with self._lock:
            jobs = [stored.job for stored in self._jobs.values()]
        submitted = [job for job in jobs if job.trial_of is None and job.through_api is through_api]
        return len([job for job in submitted if job.created_at >= moment])

    def count_ready(self, job_id: str, attempt: int, floor: int) -> int:
        """Return how many replicas of the attempt whose VM generations are not below the floor have
        ever been ready.
        """
        of_attempt = [replica for replica in self._replicas(job_id) if replica.attempt == attempt]
        ready = [replica for replica in of_attempt if replica.ever_ready]
        return len([replica for replica in ready if replica.vm_generation >= floor])

    def count_replicas(self, job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        """Return how many replicas of the attempt are in one of these states."""
        of_attempt = [replica for replica in self._replicas(job_id) if replica.attempt == attempt]
        return len([replica for replica in of_attempt if replica.state in states])

    def owner_of_vm(self, name: str) -> VmOwner | None:
        """Return the job, ended or not, that has a replica whose VM has this name."""
        # A VM's name ends with the hash of a job's id, task type and index.
        parts = name.rsplit("-", 3)
        vm_hash = parts[-3] if len(parts) > 2 else ""  # noqa: PLR2004
        # The VMs of a machine set keep the name of the job that created them, whichever job runs on
        # them now.
        with self._lock:
            for job_id in self._ids_by_hash.get(vm_hash, ()):
                job = self._jobs[job_id].job
                if job.machines is not None and is_vm_of(name, job_id):
                    machines = self._machine_sets.get(job_id)
                    if machines is None and job.set_id != job_id:
                        return None  # this job used VMs of another name: its own never existed
                    if machines is None:
                        return VmOwner(job_id, job_id)
                    return VmOwner(machines.holder, job_id, machines.is_kept)
                if _has_vm(job, name):
                    return VmOwner(job_id, job_id)
        return None

    def count_ready_for(self, job_id: str, round_key: str, floor: int) -> int:
        """Return how many members whose VM generations are not below the floor are ready for this
        round.
        """
        ready = [replica for replica in self._replicas(job_id) if replica.ready_for == round_key]
        return len([replica for replica in ready if replica.vm_generation >= floor])

    def _replicas(self, job_id: str) -> tuple[Replica, ...]:
        with self._lock:
            return tuple(self._jobs[job_id].replicas.values()) if job_id in self._jobs else ()

    def expire_history(self, job_id: str, at: datetime) -> None:
        """Do nothing: the history lasts until the process ends."""


def _position(job: Job) -> tuple[datetime, str]:
    return job.created_at, job.job_id


def _is_failing(job: Job, replica: Replica) -> bool:
    is_current = replica.attempt == job.attempt and not is_below_floor(job, replica)
    return is_current and replica.failing is not None and replica.failing.is_shown


def _has_vm(job: Job, name: str) -> bool:
    return any(vm_name(job.job_id, replica_id) == name for replica_id in job.plan.replica_ids)


def _check_versions(
    stored: StoredJob | None, change: Change, tokens: Mapping[str, object], job_id: str
) -> None:
    """Raise ConflictError if a document that the change depends on is not as it was read."""
    if change.job is not None:
        _check_version(stored.job.version if stored else None, tokens.get(JOB), job_id)
    for replica in change.replicas:
        current = stored.replicas.get(replica.key) if stored else None
        _check_version(current.version if current else None, tokens.get(replica.key), replica.key)


def _check_version(current: int | None, expected: object, document: str) -> None:
    if current != expected:
        raise ConflictError(f"{document} has changed since it was read")
