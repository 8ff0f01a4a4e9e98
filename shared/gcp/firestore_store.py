"""The Store on Firestore (native mode).

    jobs/{job_id}                          Job, `is_live`, `vm_hash`, and but for trials `submitted_at`
    jobs/{job_id}/replicas/{replica key}   Replica and `ever_ready`, `ever_lost`
    jobs/{job_id}/ledger/{event key}       LedgerEntry and `is_pending`
    rejections/{key}                       Rejection
    orphans/{instance id}                  Orphan
    stockouts/{zone and machine kind}      Stockout
    control/admission                           who was admitted last: its update time is what a turn is taken on

A change is one commit: preconditions on the update times that were read, and the ledger entry's creation as duplicate
check. No transaction, no lock: on a contended document that is several times faster, and correct.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from shared.core.evolve import Change
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, Replica, State
from shared.core.reconcile.plan import hash_in, replica_id_from_vm_name, vm_name
from shared.core.reconcile.zone_order import Stockout
from shared.errors import ConflictError, TemporaryError
from shared.gcp.documents import (
    entry_document,
    job_document,
    orphan_document,
    read,
    rejection_document,
    replica_document,
    stockout_document,
)
from shared.gcp.firestore import Document, Fields, Firestore, Order, Write, at_least, create, equal, update
from shared.gcp.rest import RestError
from shared.ports import AdmissionToken, AlreadyRecordedError, JobPlace, Loaded, Orphan, Rejection

JOB: Final = "job"
REJECTIONS: Final = "rejections"
ORPHANS: Final = "orphans"
STOCKOUTS: Final = "stockouts"
ADMISSION: Final = "control/admission_token"


class FirestoreStore:
    """See `shared.ports.Store`. Thread-safe, as its client is."""

    def __init__(self, client: Firestore) -> None:
        self._client = client

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        replicas = _replicas(job_id)
        with _translated():
            found = self._client.get(_job(job_id), *([f"{replicas}/{replica}"] if replica else []))
            job = found.pop(_job(job_id), None)
            if job is None:
                return None
            asked = list(found.values())
            if asked and lost_peers:
                of_attempt = equal("attempt", asked[0].fields["attempt"])
                lost = self._client.find(replicas, of_attempt, equal("ever_lost", True))
                asked += [each for each in lost if each.id != replica]
        return _loaded(job, asked, whole=False)

    def load_attempt(self, job_id: str) -> Loaded | None:
        with _translated():
            job = self._client.get(_job(job_id)).get(_job(job_id))
            if job is None:
                return None
            replicas = self._client.find(_replicas(job_id), equal("attempt", job.fields["attempt"]))
        return _loaded(job, replicas, whole=True)

    def commit(
        self, loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        tokens = loaded.tokens if loaded else {}
        writes = [create(f"{_ledger(entry.job_id)}/{entry.key}", entry_document(entry))]
        documents = [
            (replica.key, f"{_replicas(entry.job_id)}/{replica.key}", replica_document(replica))
            for replica in change.replicas
        ]
        if change.job:
            documents.append((JOB, _job(entry.job_id), job_document(change.job)))
        for name, path, document in documents:
            writes.append(update(path, document, tokens[name]) if name in tokens else create(path, document))
        if admission_token is not None:
            # What is written differs each time: a write that changes nothing leaves the update time as it is.
            taken = {"job_id": entry.job_id, "at": entry.at}
            writes.append(
                create(ADMISSION, taken)
                if admission_token.token is None
                else update(ADMISSION, taken, admission_token.token)
            )
        try:
            with _translated():
                self._client.commit(*writes)
        except _ExistsError:
            if self.entry(entry.job_id, entry.key):
                raise AlreadyRecordedError(entry.key) from None
            raise ConflictError(f"{entry.job_id}: a document was created meanwhile") from None

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        path = f"{_ledger(job_id)}/{key}"
        with _translated():
            found = self._client.get(path).get(path)
        return read(LedgerEntry, found.fields) if found else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        with _translated():
            found = sorted(self._client.find(_ledger(job_id)), key=lambda each: each.created_at)
        return tuple(read(LedgerEntry, each.fields) for each in found)

    def pending(self, job_id: str) -> tuple[str, ...]:
        with _translated():
            return tuple(each.id for each in self._client.find(_ledger(job_id), equal("is_pending", True)))

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        if not keys:
            return
        done = {"is_pending": False, "done_at": at}
        with _translated():
            self._client.commit(*(update(f"{_ledger(job_id)}/{key}", done) for key in keys))

    def jobs_with_pending(self) -> tuple[str, ...]:
        with _translated():
            found = self._client.find("ledger", equal("is_pending", True), everywhere=True, fields=["job_id"])
        return tuple(sorted({each.fields["job_id"] for each in found}))

    def live_jobs(self) -> tuple[Job, ...]:
        with _translated():
            return tuple(read(Job, each.fields) for each in self._client.find("jobs", equal("is_live", True)))

    def admission_token(self) -> AdmissionToken:
        with _translated():
            last = self._client.get(ADMISSION).get(ADMISSION)
        return AdmissionToken(last.update_time if last else None, self.live_jobs())

    def recent_jobs(self, limit: int, after: JobPlace | None = None) -> tuple[Job, ...]:
        """The order that Firestore's own index of one field has: no index has to be made for it."""
        order = Order("created_at", limit, (after.created_at, _job(after.job_id)) if after else None)
        with _translated():
            return tuple(read(Job, each.fields) for each in self._client.find("jobs", order=order))

    def created_since(self, moment: datetime) -> int:
        with _translated():
            return self._client.count("jobs", at_least("submitted_at", moment))

    def count_ready(self, job_id: str, attempt: int) -> int:
        with _translated():
            return self._client.count(_replicas(job_id), equal("attempt", attempt), equal("ever_ready", True))

    def reject(self, rejection: Rejection) -> None:
        self._once(f"{REJECTIONS}/{rejection.key}", rejection_document(rejection))

    def rejections(self) -> tuple[Rejection, ...]:
        with _translated():
            return tuple(read(Rejection, each.fields) for each in self._client.find(REJECTIONS))

    def job_of_vm(self, name: str) -> str | None:
        """Asked by the names' common part, which is short enough for two jobs to share; the name itself decides."""
        vm_hash = hash_in(name)
        if vm_hash is None:
            return None
        with _translated():
            jobs = [read(Job, each.fields) for each in self._client.find("jobs", equal("vm_hash", vm_hash))]
        replica_id = replica_id_from_vm_name(name)
        return next(
            (
                job.job_id
                for job in jobs
                if replica_id in job.plan.replica_ids and vm_name(job.job_id, replica_id) == name
            ),
            None,
        )

    def note_stockout(self, stockout: Stockout) -> None:
        """Written over: a write that comes late is late by moments, which matter to nobody here."""
        key = f"{stockout.zone}-{hashlib.sha256(stockout.kind.encode()).hexdigest()[:16]}"
        with _translated():
            self._client.commit(Write(f"{STOCKOUTS}/{key}", stockout_document(stockout)))

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        with _translated():
            return tuple(read(Stockout, each.fields) for each in self._client.find(STOCKOUTS, at_least("at", since)))

    def report_orphan(self, orphan: Orphan) -> None:
        self._once(f"{ORPHANS}/{orphan.instance_id}", orphan_document(orphan))

    def orphans(self) -> tuple[Orphan, ...]:
        with _translated():
            return tuple(read(Orphan, each.fields) for each in self._client.find(ORPHANS))

    def forget_orphan(self, instance_id: str) -> None:
        with _translated():
            self._client.commit(Write(f"{ORPHANS}/{instance_id}", None))

    def _once(self, path: str, document: Fields) -> None:
        """Who wrote it first stands."""
        with suppress(_ExistsError), _translated():
            self._client.commit(create(path, document))


class _ExistsError(Exception):
    """A document that was to be created is there."""


@contextmanager
def _translated() -> Iterator[None]:
    """Google's errors as ours. What is neither is a bug and goes on as it is."""
    try:
        yield
    except RestError as error:
        if error.code == "ALREADY_EXISTS":
            raise _ExistsError(str(error)) from error
        if error.code in ("FAILED_PRECONDITION", "ABORTED", "NOT_FOUND"):
            raise ConflictError(str(error)) from error
        if error.is_transient:
            raise TemporaryError(f"Firestore: {error}") from error
        raise


def _job(job_id: str) -> str:
    return f"jobs/{job_id}"


def _replicas(job_id: str) -> str:
    return f"jobs/{job_id}/replicas"


def _ledger(job_id: str) -> str:
    return f"jobs/{job_id}/ledger"


def _loaded(job: Document, replicas: Sequence[Document], *, whole: bool) -> Loaded:
    state_job = read(Job, job.fields)
    read_replicas = [read(Replica, each.fields) for each in replicas]
    if whole:
        order = {replica_id: nth for nth, replica_id in enumerate(state_job.plan.replica_ids)}
        read_replicas.sort(key=lambda each: order[each.replica_id])
    tokens: dict[str, object] = {each.id: each.update_time for each in replicas}
    return Loaded(State(state_job, tuple(read_replicas), whole), {JOB: job.update_time, **tokens})
