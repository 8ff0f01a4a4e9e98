"""The Store on Firestore (native mode).

    jobs/{job_id}                          Job, `is_live`, `vm_hash`; `submitted_at` or `api_submitted_at`, if submitted
    jobs/{job_id}/replicas/{replica key}   Replica, `ever_ready`, `lost_until`, `failed_until`
    jobs/{job_id}/ledger/{event key}       LedgerEntry, `is_pending`, `is_notification_pending` while it is open
    rejections/{key}                       Rejection
    orphans/{instance id}                  Orphan
    stockouts/{zone and machine kind}      Stockout
    leases/{job_id}                        `expires_at` of the lease on work for this job
    control/admission_token                the last admission; its update time is the admission token

Documents that no decision needs any more have the time of their deletion in `expire_at` (a lease has `expires_at`):
replicas of earlier attempts, rejections, stockouts, and the history of deleted jobs. TTL policies of infra/ delete them
within about a day after it. Nothing depends on when.

A change is one batched write. Its preconditions are the update times that were read, and that the ledger entry does not
exist yet. There are no transactions and no locks: on a contended document that is several times faster, and as correct.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final

from google.api_core import exceptions
from google.cloud.firestore import DELETE_FIELD, Client, DocumentSnapshot, Query, WriteBatch
from google.cloud.firestore_v1.base_query import FieldFilter

from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, JobState, Label, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.vm_names import job_hash_in, replica_id_from_vm_name, vm_name
from shared.core.reconcile.zone_order import Stockout
from shared.core.timeouts import HISTORY_KEPT
from shared.core.transitions.change import Change
from shared.errors import ConflictError
from shared.gcp.documents import (
    EXPIRE_AT,
    NOTIFICATION_PENDING,
    Document,
    UnreadableError,
    entry_document,
    job_document,
    orphan_document,
    read,
    rejection_document,
    replica_document,
    stockout_document,
    submission_time_field,
)
from shared.gcp.errors import google_errors, is_missing_database, translate
from shared.gcp.retries import CALL
from shared.ports import (
    LOST_PEERS_PAGE,
    AdmissionToken,
    AlreadyRecordedError,
    JobPosition,
    Lease,
    LiveJobs,
    Loaded,
    Orphan,
    PendingEntries,
    Rejection,
)

_log = logging.getLogger(__name__)

JOB: Final = "job"
"""Key of the job's document in `Loaded.tokens`."""
JOBS: Final = "jobs"
LEDGER: Final = "ledger"
REJECTIONS: Final = "rejections"
ORPHANS: Final = "orphans"
STOCKOUTS: Final = "stockouts"
LEASES: Final = "leases"
ADMISSION: Final = "control/admission_token"

EXPIRY_BATCH: Final = 500
"""Documents in one write of `expire_history`."""
MARK_TRIES: Final = 5
"""How often `mark_done` reads again after another writer confirmed some of the same entries."""

_EPOCH: Final = datetime.min.replace(tzinfo=UTC)
_CONFLICTS: Final = (exceptions.FailedPrecondition, exceptions.Aborted, exceptions.NotFound)


class FirestoreStore:
    """See `shared.ports.Store`. Thread-safe, as its client is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        paths = [_job(job_id), *([f"{_replicas(job_id)}/{replica}"] if replica else [])]
        documents = self._get(*paths)
        job = documents.pop(_job(job_id), None)
        return _loaded(job, list(documents.values()), whole=False) if job is not None else None

    def lost_peers(self, job_id: str, replica: Replica, since: datetime | None) -> Iterator[tuple[Replica, ...]]:
        """The first page of each query is small: after a loss, almost every exit is explained by its first peer."""
        for field in ("lost_until", "failed_until"):
            away = (field, ">=", since or _EPOCH)
            query = self._where(_replicas(job_id), ("attempt", "==", replica.attempt), away)
            query = query.order_by(field, direction=Query.DESCENDING)
            page = self._find(query.limit(LOST_PEERS_PAGE))
            yield _peers(page, replica)
            if len(page) == LOST_PEERS_PAGE:
                yield _peers(self._find(query.start_after(page[-1])), replica)

    def load_attempt(self, job_id: str) -> Loaded | None:
        job = self._get(_job(job_id)).get(_job(job_id))
        if job is None:
            return None
        replicas = self._where(_replicas(job_id), ("attempt", "==", job.get("attempt")))
        loaded = _loaded(job, self._find(replicas, read_time=job.read_time), whole=True)
        return replace(loaded, read_at=job.read_time)

    def commit(
        self, loaded: Loaded | None, entry: LedgerEntry, change: Change, admission_token: AdmissionToken | None = None
    ) -> None:
        tokens = loaded.tokens if loaded else {}
        job = change.job or (loaded.state.job if loaded else None)
        expire_at = entry.at + HISTORY_KEPT
        batch = self._client.batch()
        document = entry_document(entry, expire_at if job and job.deleted_at else None)
        batch.create(self._client.document(f"{_ledger(entry.job_id)}/{entry.key}"), document)
        for replica in change.replicas:
            path = f"{_replicas(entry.job_id)}/{replica.key}"
            is_past = job is not None and replica.attempt < job.attempt
            self._write(batch, path, replica_document(replica, expire_at if is_past else None), tokens.get(replica.key))
        if change.job:
            self._write(batch, _job(entry.job_id), job_document(change.job), tokens.get(JOB))
        if admission_token is not None:
            # The values differ from the last admission's: an update that changes nothing keeps the update time.
            self._write(batch, ADMISSION, {"job_id": entry.job_id, "at": entry.at}, admission_token.token)
        try:
            _commit(batch, f"commit {entry.job_id} {entry.key}")
        except _ExistsError:
            if self.entry(entry.job_id, entry.key):
                raise AlreadyRecordedError(entry.key) from None
            raise ConflictError(f"{entry.job_id}: another writer created one of the documents") from None

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        path = f"{_ledger(job_id)}/{key}"
        snapshot = self._get(path).get(path)
        return read(LedgerEntry, snapshot.to_dict()) if snapshot else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        return _in_order_of_commits(self._find(self._client.collection(_ledger(job_id))))

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        return _in_order_of_commits(self._find(self._where(_ledger(job_id), ("at", ">=", moment))))

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        query = self._where(_ledger(job_id), ("is_pending", "==", True)).select(["__name__"])
        return tuple(snapshot.id for snapshot in self._find(query))

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        """Compare Firestore's times of the commits with its time of the read. Equal times count as later."""
        query = self._where(_ledger(loaded.state.job.job_id), ("is_pending", "==", True)).select(["__name__"])
        entries = self._find(query)
        included = tuple(entry.id for entry in entries if entry.create_time < loaded.read_at)
        later = tuple(entry.id for entry in entries if entry.create_time >= loaded.read_at)
        return PendingEntries(included, later)

    def is_pending(self, job_id: str, key: str) -> bool:
        path = f"{_ledger(job_id)}/{key}"
        snapshot = self._get(path, fields=["is_pending"]).get(path)
        return snapshot is not None and bool(snapshot.get("is_pending"))

    def mark_done(self, job_id: str, keys: Sequence[str], at: datetime) -> None:
        """Write only entries that are pending, as they were read: the time of an earlier confirmation stays."""
        paths = [f"{_ledger(job_id)}/{key}" for key in keys]
        for _ in range(MARK_TRIES):
            entries = self._get(*paths, fields=["is_pending"]) if paths else {}
            pending = [entry for entry in entries.values() if entry.get("is_pending")]
            if not pending:
                return
            batch = self._client.batch()
            for entry in pending:
                option = self._client.write_option(last_update_time=entry.update_time)
                batch.update(entry.reference, {"is_pending": False, "done_at": at}, option)
            try:
                _commit(batch, f"mark entries of {job_id} done")
            except ConflictError:
                continue
            return
        raise ConflictError(f"{job_id}: other writers kept marking the same ledger entries as done")

    def take_lease(self, name: str, now: datetime, expires_at: datetime) -> Lease | None:
        path = f"{LEASES}/{name}"
        snapshot = self._get(path).get(path)
        if snapshot is not None and snapshot.get("expires_at") > now:
            return None
        return self._write_lease(name, expires_at, snapshot.update_time if snapshot else None)

    def extend_lease(self, lease: Lease, expires_at: datetime) -> Lease | None:
        return self._write_lease(lease.name, expires_at, lease.token)

    def release_lease(self, lease: Lease) -> None:
        batch = self._client.batch()
        option = self._client.write_option(last_update_time=lease.token)
        batch.delete(self._client.document(f"{LEASES}/{lease.name}"), option)
        with suppress(ConflictError):
            _commit(batch, f"release the lease {lease.name}")

    def _write_lease(self, name: str, expires_at: datetime, update_time: object) -> Lease | None:
        """Return None if another writer has changed the lease since `update_time`."""
        batch = self._client.batch()
        self._write(batch, f"{LEASES}/{name}", {"expires_at": expires_at}, update_time)
        try:
            _commit(batch, f"write the lease {name}")
        except (ConflictError, _ExistsError):
            return None
        results: Any = batch.write_results
        return Lease(name, results[0].update_time)

    def jobs_with_pending(self) -> tuple[str, ...]:
        ledgers = self._client.collection_group(LEDGER)
        query = ledgers.where(filter=FieldFilter("is_pending", "==", True)).select(["job_id"])
        return tuple(sorted({snapshot.get("job_id") for snapshot in self._find(query)}))

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        """Write without a precondition: all writers write the same but for the time, and no one reads the time."""
        batch = self._client.batch()
        entry = self._client.document(f"{_ledger(job_id)}/{key}")
        batch.update(entry, {NOTIFICATION_PENDING: DELETE_FIELD, "notified_at": at})
        with suppress(ConflictError):  # the entry expired meanwhile
            _commit(batch, f"confirm the notification of {job_id} {key}")

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        ledgers = self._client.collection_group(LEDGER)
        query = ledgers.where(filter=FieldFilter(NOTIFICATION_PENDING, "==", True)).limit(limit)
        return tuple(entry for entry in map(_read_entry, self._find(query)) if entry is not None)

    def live_jobs(self) -> tuple[Job, ...]:
        return self.survey_live_jobs().jobs

    def survey_live_jobs(self) -> LiveJobs:
        jobs, unreadable = [], []
        for snapshot in self._find(self._where(JOBS, ("is_live", "==", True))):
            job = _read_job(snapshot)
            if job is None:
                unreadable.append(snapshot.id)
            else:
                jobs.append(job)
        return LiveJobs(tuple(jobs), tuple(unreadable))

    def admission_token(self) -> AdmissionToken:
        """Read the token before the jobs: an admission in between then fails the commit that uses the token."""
        last = self._get(ADMISSION).get(ADMISSION)
        live = self.survey_live_jobs()
        return AdmissionToken(last.update_time if last else None, live.jobs, len(live.unreadable))

    def next_admission_token(self, token: AdmissionToken, job_id: str) -> AdmissionToken:
        """The document names the job admitted last. A job is admitted once, so its id means no later admission."""
        last = self._get(ADMISSION).get(ADMISSION)
        if last is None or last.get("job_id") != job_id:
            raise ConflictError(f"another job was admitted after {job_id}")
        return replace(token, token=last.update_time)

    def count_live(self) -> int:
        return self._count(self._where(JOBS, ("is_live", "==", True)))

    def recent_jobs(self, limit: int, after: JobPosition | None = None) -> tuple[Job, ...]:
        """Use Firestore's automatic index of one field, whose second key is the document's name."""
        query = self._client.collection(JOBS).order_by("created_at", direction=Query.DESCENDING)
        query = query.order_by("__name__", direction=Query.DESCENDING).limit(limit)
        if after:
            document = self._client.document(_job(after.job_id))
            query = query.start_after({"created_at": after.created_at, "__name__": document})
        return self._jobs(query)

    def count_by_state(self, label: Label | None = None) -> dict[JobState, int]:
        """One aggregation for each state, all at once. Each costs one read per 1,000 index entries, at least one."""
        conditions: list[tuple[str, str, object]] = [("deleted_at", "==", None), ("trial_of", "==", None)]
        if label:
            conditions.append(("labels", "array_contains", asdict(label)))
        queries = [self._where(JOBS, ("state", "==", state.value), *conditions) for state in JobState]
        with ThreadPoolExecutor(len(queries)) as pool:
            return dict(zip(JobState, pool.map(self._count, queries), strict=True))

    def count_created_since(self, moment: datetime, *, through_api: bool) -> int:
        field = submission_time_field(through_api=through_api)
        return self._count(self._where(JOBS, (field, ">=", moment)))

    def count_ready(self, job_id: str, attempt: int) -> int:
        return self._count(self._where(_replicas(job_id), ("attempt", "==", attempt), ("ever_ready", "==", True)))

    def count_replicas(self, job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        values = [state.value for state in states]
        return self._count(self._where(_replicas(job_id), ("attempt", "==", attempt), ("state", "in", values)))

    def reject(self, rejection: Rejection) -> None:
        self._create_once(f"{REJECTIONS}/{rejection.key}", rejection_document(rejection))

    def rejections(self) -> tuple[Rejection, ...]:
        return tuple(
            read(Rejection, snapshot.to_dict()) for snapshot in self._find(self._client.collection(REJECTIONS))
        )

    def job_of_vm(self, name: str) -> str | None:
        """Query by the hash in the name, which two jobs may share; then compare the whole name."""
        vm_hash = job_hash_in(name)
        if vm_hash is None:
            return None
        replica_id = replica_id_from_vm_name(name)
        for snapshot in self._find(self._where(JOBS, ("vm_hash", "==", vm_hash))):
            job = _read_job(snapshot)
            has_replica = job is None or replica_id in job.plan.replica_ids
            if has_replica and vm_name(snapshot.id, replica_id) == name:
                return str(snapshot.id)
        return None

    def expire_history(self, job_id: str, at: datetime) -> None:
        """Write in batches, in the order of the documents' names. A repetition writes the same again."""
        for collection in (_ledger(job_id), _replicas(job_id)):
            query = self._client.collection(collection).order_by("__name__").select(["__name__"]).limit(EXPIRY_BATCH)
            snapshots = self._find(query)
            while snapshots:
                batch = self._client.batch()
                for snapshot in snapshots:
                    batch.update(snapshot.reference, {EXPIRE_AT: at})
                _commit(batch, f"expire the history of {job_id}")
                snapshots = self._find(query.start_after({"__name__": snapshots[-1].reference}))

    def note_stockout(self, stockout: Stockout) -> None:
        """Overwrite the last one. Two that arrive in the wrong order are moments apart, which changes nothing."""
        key = f"{stockout.zone}-{hashlib.sha256(stockout.kind.encode()).hexdigest()[:16]}"
        batch = self._client.batch()
        batch.set(self._client.document(f"{STOCKOUTS}/{key}"), stockout_document(stockout))
        _commit(batch, f"note the stockout in {stockout.zone}")

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        snapshots = self._find(self._where(STOCKOUTS, ("at", ">=", since)))
        return tuple(read(Stockout, snapshot.to_dict()) for snapshot in snapshots)

    def report_orphan(self, orphan: Orphan) -> None:
        self._create_once(f"{ORPHANS}/{orphan.instance_id}", orphan_document(orphan))

    def orphans(self) -> tuple[Orphan, ...]:
        return tuple(read(Orphan, snapshot.to_dict()) for snapshot in self._find(self._client.collection(ORPHANS)))

    def forget_orphan(self, instance_id: str) -> None:
        batch = self._client.batch()
        batch.delete(self._client.document(f"{ORPHANS}/{instance_id}"))
        _commit(batch, f"forget orphan {instance_id}")

    def close(self) -> None:
        self._client.close()

    def _get(self, *paths: str, fields: Sequence[str] | None = None) -> dict[str, DocumentSnapshot[Any]]:
        """Return the documents that exist, by path, in the order of `paths`. `fields`: only these fields of them."""
        references = [self._client.document(path) for path in paths]
        with google_errors("Firestore: get documents"):
            found = self._client.get_all(references, field_paths=fields, **CALL)
            snapshots = {snapshot.reference.path: snapshot for snapshot in found}
        return {path: snapshots[path] for path in paths if path in snapshots and snapshots[path].exists}

    def _where(self, collection: str, *conditions: tuple[str, str, object]) -> Any:
        query: Any = self._client.collection(collection)
        for field, operator, value in conditions:
            query = query.where(filter=FieldFilter(field, operator, value))
        return query

    def _find(self, query: Any, read_time: datetime | None = None) -> list[DocumentSnapshot[Any]]:
        """Return the documents as they are now, or as they were at `read_time`."""
        with google_errors("Firestore: query"):
            return list(query.get(read_time=read_time, **CALL))

    def _jobs(self, query: Any) -> tuple[Job, ...]:
        return tuple(read(Job, snapshot.to_dict()) for snapshot in self._find(query))

    def _count(self, query: Any) -> int:
        with google_errors("Firestore: count"):
            ((result,),) = query.count().get(**CALL)
        return int(result.value)

    def _write(self, batch: WriteBatch, path: str, document: Document, update_time: object) -> None:
        """Update the document if it has not been written since `update_time`. None: create it if it does not exist."""
        reference = self._client.document(path)
        if update_time is None:
            batch.create(reference, document)
        else:
            batch.update(reference, document, self._client.write_option(last_update_time=update_time))

    def _create_once(self, path: str, document: Document) -> None:
        """Create the document. One that exists stays as it is."""
        batch = self._client.batch()
        batch.create(self._client.document(path), document)
        with suppress(_ExistsError):
            _commit(batch, f"create {path}")


def _in_order_of_commits(snapshots: list[DocumentSnapshot[Any]]) -> tuple[LedgerEntry, ...]:
    snapshots.sort(key=lambda snapshot: snapshot.create_time)
    return tuple(read(LedgerEntry, snapshot.to_dict()) for snapshot in snapshots)


def _read_job(snapshot: DocumentSnapshot[Any]) -> Job | None:
    """Return None, and log it, for a document that this release cannot read. One bad document stops one job."""
    try:
        return read(Job, snapshot.to_dict())
    except UnreadableError as error:
        _log.error("unreadable job: %s", error, extra={"job_id": snapshot.id})
        return None


def _read_entry(snapshot: DocumentSnapshot[Any]) -> LedgerEntry | None:
    """Return None, and log it, for a document that this release cannot read."""
    try:
        return read(LedgerEntry, snapshot.to_dict())
    except UnreadableError as error:
        # The alert in infra/monitoring.tf looks for "unreadable job".
        _log.error("unreadable job: ledger entry: %s", error, extra={"event": snapshot.id})
        return None


class _ExistsError(Exception):
    """A document that the batch creates exists already."""


def _commit(batch: WriteBatch, action: str) -> None:
    """Raises _ExistsError, and ConflictError for a document that was written or deleted since it was read."""
    with google_errors(f"Firestore: {action}", _translate_commit):
        batch.commit(**CALL)


def _translate_commit(error: exceptions.GoogleAPICallError) -> Exception | None:
    if isinstance(error, exceptions.AlreadyExists):
        return _ExistsError(error.message)
    if isinstance(error, _CONFLICTS) and not is_missing_database(error):
        return ConflictError(error.message)
    return translate(error)


def _job(job_id: str) -> str:
    return f"{JOBS}/{job_id}"


def _replicas(job_id: str) -> str:
    return f"{JOBS}/{job_id}/replicas"


def _ledger(job_id: str) -> str:
    return f"{JOBS}/{job_id}/{LEDGER}"


def _peers(snapshots: Sequence[DocumentSnapshot[Any]], own: Replica) -> tuple[Replica, ...]:
    return tuple(read(Replica, snapshot.to_dict()) for snapshot in snapshots if snapshot.id != own.key)


def _loaded(job: DocumentSnapshot[Any], replicas: Sequence[DocumentSnapshot[Any]], *, whole: bool) -> Loaded:
    state_job = read(Job, job.to_dict())
    state_replicas = [read(Replica, snapshot.to_dict()) for snapshot in replicas]
    if whole:
        order = {replica_id: position for position, replica_id in enumerate(state_job.plan.replica_ids)}
        state_replicas.sort(key=lambda replica: order[replica.replica_id])
    tokens: dict[str, object] = {snapshot.id: snapshot.update_time for snapshot in replicas}
    return Loaded(State(state_job, tuple(state_replicas), whole), {JOB: job.update_time, **tokens})
