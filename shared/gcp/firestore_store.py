"""The Store on Firestore (native mode).

    jobs/{job_id}                          Job, `is_live`, `vm_hash`, and but for trials `submitted_at`
    jobs/{job_id}/replicas/{replica key}   Replica and `ever_ready`, `ever_lost`
    jobs/{job_id}/ledger/{event key}       LedgerEntry and `is_pending`
    rejections/{key}                       Rejection
    orphans/{instance id}                  Orphan
    stockouts/{zone and machine kind}      Stockout
    control/turn                           who was admitted last: its update time is what a turn is taken on

A change is one batch: preconditions on the update times that were read, and the ledger entry's creation as duplicate
check. No transaction, no lock: on a contended document that is several times faster, and correct.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from google.api_core import exceptions
from google.cloud import firestore
from google.cloud.firestore_v1.base_query import FieldFilter

from shared.core.evolve import Change
from shared.core.fleet import hash_in, seat_of, vm_name
from shared.core.jobs import Job, Replica, State
from shared.core.ledger import LedgerEntry
from shared.core.zones import Stockout
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
from shared.ports import AlreadyRecordedError, JobPlace, Loaded, Orphan, Rejection, Turn

JOB: Final = "job"
TIMEOUT_S: Final = 20.0
"""Of one call. The functions' own deadline is 60 s."""

Snapshot = Any


class FirestoreStore:
    """See `shared.ports.Store`. Thread-safe, as its client is."""

    def __init__(self, client: firestore.Client) -> None:
        self._client = client
        self._jobs = client.collection("jobs")

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        job_ref = self._jobs.document(job_id)
        replicas = job_ref.collection("replicas")
        refs = [job_ref, *([replicas.document(replica)] if replica else [])]
        with _translated():
            found = {each.reference.path: each for each in self._client.get_all(refs, timeout=TIMEOUT_S) if each.exists}
            if job_ref.path not in found:
                return None
            snapshots = [each for path, each in found.items() if path != job_ref.path]
            if snapshots and lost_peers:
                attempt = snapshots[0].get("attempt")
                query = replicas.where(filter=FieldFilter("attempt", "==", attempt))
                query = query.where(filter=FieldFilter("ever_lost", "==", True))
                snapshots += [each for each in query.stream(timeout=TIMEOUT_S) if each.id != replica]
        return _loaded(found[job_ref.path], snapshots, whole=False)

    def load_attempt(self, job_id: str) -> Loaded | None:
        job_ref = self._jobs.document(job_id)
        with _translated():
            job = job_ref.get(timeout=TIMEOUT_S)
            if not job.exists:
                return None
            query = job_ref.collection("replicas").where(filter=FieldFilter("attempt", "==", job.get("attempt")))
            snapshots = list(query.stream(timeout=TIMEOUT_S))
        return _loaded(job, snapshots, whole=True)

    def commit(self, loaded: Loaded | None, entry: LedgerEntry, change: Change, turn: Turn | None = None) -> None:
        job_ref = self._jobs.document(entry.job_id)
        tokens = loaded.tokens if loaded else {}
        batch = self._client.batch()
        batch.create(job_ref.collection("ledger").document(entry.key), entry_document(entry))
        writes = [
            (replica.key, job_ref.collection("replicas").document(replica.key), replica_document(replica))
            for replica in change.replicas
        ]
        if change.job:
            writes.append((JOB, job_ref, job_document(change.job)))
        for name, ref, document in writes:
            if name in tokens:
                option = self._client.write_option(last_update_time=tokens[name])
                batch.update(ref, document, option=option)
            else:
                batch.create(ref, document)
        if turn is not None:
            self._take(turn, entry, batch)
        try:
            with _translated():
                batch.commit(timeout=TIMEOUT_S)
        except _ExistsError:
            if self.entry(entry.job_id, entry.key):
                raise AlreadyRecordedError(entry.key) from None
            raise ConflictError(f"{entry.job_id}: a document was created meanwhile") from None

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        with _translated():
            snapshot = self._ledger(job_id).document(key).get(timeout=TIMEOUT_S)
        return read(LedgerEntry, snapshot.to_dict()) if snapshot.exists else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        with _translated():
            snapshots = sorted(self._ledger(job_id).stream(timeout=TIMEOUT_S), key=lambda each: each.create_time)
        return tuple(read(LedgerEntry, each.to_dict()) for each in snapshots)

    def pending(self, job_id: str) -> tuple[str, ...]:
        query = self._ledger(job_id).where(filter=FieldFilter("is_pending", "==", True))
        with _translated():
            return tuple(each.id for each in query.stream(timeout=TIMEOUT_S))

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        if not keys:
            return
        batch = self._client.batch()
        for key in keys:
            batch.update(self._ledger(job_id).document(key), {"is_pending": False, "done_at": at})
        with _translated():
            batch.commit(timeout=TIMEOUT_S)

    def jobs_with_pending(self) -> tuple[str, ...]:
        query = self._client.collection_group("ledger").where(filter=FieldFilter("is_pending", "==", True))
        with _translated():
            return tuple(sorted({each.get("job_id") for each in query.select(["job_id"]).stream(timeout=TIMEOUT_S)}))

    def live_jobs(self) -> tuple[Job, ...]:
        query = self._jobs.where(filter=FieldFilter("is_live", "==", True))
        with _translated():
            return tuple(read(Job, each.to_dict()) for each in query.stream(timeout=TIMEOUT_S))

    def turn(self) -> Turn:
        with _translated():
            last = self._last_turn().get(timeout=TIMEOUT_S)
        return Turn(last.update_time if last.exists else None, self.live_jobs())

    def recent_jobs(self, limit: int, after: JobPlace | None = None) -> tuple[Job, ...]:
        """The order that Firestore's own index of one field has: no index has to be made for it."""
        query = self._jobs.order_by("created_at", direction=firestore.Query.DESCENDING)
        query = query.order_by("__name__", direction=firestore.Query.DESCENDING).limit(limit)
        if after is not None:
            query = query.start_after({"created_at": after.created_at, "__name__": self._jobs.document(after.job_id)})
        with _translated():
            return tuple(read(Job, each.to_dict()) for each in query.stream(timeout=TIMEOUT_S))

    def created_since(self, moment: datetime) -> int:
        query: Any = self._jobs.where(filter=FieldFilter("submitted_at", ">=", moment))
        with _translated():
            return int(query.count().get(timeout=TIMEOUT_S)[0][0].value)

    def count_ready(self, job_id: str, attempt: int) -> int:
        query = self._jobs.document(job_id).collection("replicas")
        query = query.where(filter=FieldFilter("attempt", "==", attempt))
        query = query.where(filter=FieldFilter("ever_ready", "==", True))
        with _translated():
            return int(query.count().get(timeout=TIMEOUT_S)[0][0].value)

    def reject(self, rejection: Rejection) -> None:
        with _translated():
            try:
                self._rejections().document(rejection.key).create(rejection_document(rejection), timeout=TIMEOUT_S)
            except exceptions.AlreadyExists:
                return

    def rejections(self) -> tuple[Rejection, ...]:
        with _translated():
            return tuple(read(Rejection, each.to_dict()) for each in self._rejections().stream(timeout=TIMEOUT_S))

    def job_of_vm(self, name: str) -> str | None:
        """Asked by the names' common part, which is short enough for two jobs to share; the name itself decides."""
        vm_hash = hash_in(name)
        if vm_hash is None:
            return None
        query = self._jobs.where(filter=FieldFilter("vm_hash", "==", vm_hash))
        with _translated():
            jobs = [read(Job, each.to_dict()) for each in query.stream(timeout=TIMEOUT_S)]
        seat = seat_of(name)
        return next((job.job_id for job in jobs if seat in job.plan.seats and vm_name(job.job_id, seat) == name), None)

    def note_stockout(self, stockout: Stockout) -> None:
        """Written over: a write that comes late is late by moments, which matter to nobody here."""
        key = f"{stockout.zone}-{hashlib.sha256(stockout.kind.encode()).hexdigest()[:16]}"
        with _translated():
            self._stockouts().document(key).set(stockout_document(stockout), timeout=TIMEOUT_S)

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        query = self._stockouts().where(filter=FieldFilter("at", ">=", since))
        with _translated():
            return tuple(read(Stockout, each.to_dict()) for each in query.stream(timeout=TIMEOUT_S))

    def report_orphan(self, orphan: Orphan) -> None:
        with _translated():
            try:
                self._orphans().document(orphan.instance_id).create(orphan_document(orphan), timeout=TIMEOUT_S)
            except exceptions.AlreadyExists:
                return

    def orphans(self) -> tuple[Orphan, ...]:
        with _translated():
            return tuple(read(Orphan, each.to_dict()) for each in self._orphans().stream(timeout=TIMEOUT_S))

    def forget_orphan(self, instance_id: str) -> None:
        with _translated():
            self._orphans().document(instance_id).delete(timeout=TIMEOUT_S)

    def _take(self, turn: Turn, entry: LedgerEntry, batch: firestore.WriteBatch) -> None:
        """What is written differs each time: a write that changes nothing leaves the update time as it is."""
        document = {"job_id": entry.job_id, "at": entry.at}
        if turn.token is None:
            batch.create(self._last_turn(), document)
        else:
            option = self._client.write_option(last_update_time=turn.token)
            batch.update(self._last_turn(), document, option=option)

    def _last_turn(self) -> Any:
        return self._client.collection("control").document("turn")

    def _ledger(self, job_id: str) -> Any:
        return self._jobs.document(job_id).collection("ledger")

    def _rejections(self) -> Any:
        return self._client.collection("rejections")

    def _stockouts(self) -> Any:
        return self._client.collection("stockouts")

    def _orphans(self) -> Any:
        return self._client.collection("orphans")


class _ExistsError(Exception):
    """A document that was to be created is there."""


@contextmanager
def _translated() -> Iterator[None]:
    """Google's errors as ours. What is neither is a bug and goes on as it is."""
    try:
        yield
    except exceptions.AlreadyExists as error:
        raise _ExistsError(str(error)) from error
    except (exceptions.FailedPrecondition, exceptions.Aborted, exceptions.NotFound) as error:
        raise ConflictError(str(error)) from error
    except (
        exceptions.ServerError,
        exceptions.ResourceExhausted,
        exceptions.RetryError,
        exceptions.Cancelled,
    ) as error:
        raise TemporaryError(str(error)) from error


def _loaded(job: Snapshot, replicas: Sequence[Snapshot], *, whole: bool) -> Loaded:
    state_job = read(Job, job.to_dict())
    read_replicas = [read(Replica, each.to_dict()) for each in replicas]
    if whole:
        order = {seat: nth for nth, seat in enumerate(state_job.plan.seats)}
        read_replicas.sort(key=lambda each: order[each.seat])
    tokens: dict[str, object] = {each.id: each.update_time for each in replicas}
    return Loaded(State(state_job, tuple(read_replicas), whole), {JOB: job.update_time, **tokens})
