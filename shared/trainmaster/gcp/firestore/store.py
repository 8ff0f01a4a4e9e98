"""The Store on Firestore (native mode).

    jobs/{job_id}                          Job, its plan as JSON text, `is_live`, `vm_hash`,
                                           `names`; if it was submitted, `owner` and
                                           `submitted_at` or `api_submitted_at`
    jobs/{job_id}/replicas/{replica key}   Replica, `ever_ready`, `ready_for`
    jobs/{job_id}/ledger/{event key}       LedgerEntry, its event and decision as JSON text,
                                           `committed_at`, `is_pending`, `is_notification_pending`
                                           if open
    rejections/{key}                       Rejection
    orphans/{instance id}                  Orphan
    capacity/{zone and machine kind}       Outcome
    machines/{job that created the VMs}    MachineSet
    leases/{job_id}                        `expires_at`, `holder` of the lease on work for this job
    control/admission_token                the last admission; its update time is the token
    control/admission_queue                the AdmissionQueue, packed: a thousand waiting jobs cost
                                           no index entries
    control/sweep                          SweepRequests

Documents that no decision needs any more have the time of their deletion in `expire_at` (a lease
has `expires_at`): replicas of earlier attempts, rejections, outcomes of requests, and the history
of deleted jobs. TTL policies of infra/ delete them within about a day after that time. Nothing
depends on the exact time.

A change is one batched write. Its preconditions are the update times that were read, and that the
ledger entry does not exist yet. There are no transactions and no locks: on a contended document
that is several times faster, and as correct.

This module has the small parts, leases and incidents, and puts all parts together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from google.cloud.firestore import Client

from trainmaster.core.model.capacity import Outcome
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.database import Database, ExistsError, commit
from trainmaster.gcp.firestore.documents import (
    orphan_document,
    outcome_document,
    read,
    rejection_document,
)
from trainmaster.gcp.firestore.job_queries import JobQueries
from trainmaster.gcp.firestore.ledger import Ledgers
from trainmaster.gcp.firestore.states import States
from trainmaster.ports import Lease, Orphan, Rejection

LEASES: Final = "leases"
"""Name of a collection, as are the three below."""
REJECTIONS: Final = "rejections"
ORPHANS: Final = "orphans"
CAPACITY: Final = "capacity"
NOTED_FOR: Final = timedelta(minutes=1)
"""Time within which a process does not write the same outcome again.

Firestore recommends at most one write per second to a document, and a thousand jobs may request the
same VMs.
"""


class Leases(Database):
    """Leases on work: the holder of a lease does the work alone, until it expires.

    Adapter of `trainmaster.ports.store.Leases`, whose docstrings are the contract. `holder` is the
    id of the message that the holder handles; empty: unknown.
    """

    def take_lease(
        self, name: str, now: datetime, expires_at: datetime, holder: str = ""
    ) -> Lease | None:
        """Return the lease. None: another holder has it, and it has not expired at `now`.

        A holder may take its own lease again: Pub/Sub redelivers the message of a process that has
        died under the same id.
        """
        path = f"{LEASES}/{name}"
        snapshot = self._get(path).get(path)
        if snapshot is None:
            return self._write_lease(name, holder, expires_at, update_time=None)
        lease = snapshot.to_dict() or {}
        is_own = holder != "" and holder == lease.get("holder")
        if lease["expires_at"] > now and not is_own:
            return None
        return self._write_lease(name, holder, expires_at, snapshot.update_time)

    def extend_lease(self, lease: Lease, expires_at: datetime) -> Lease | None:
        """Return the lease with a later end. None: another holder has taken it meanwhile."""
        return self._write_lease(lease.name, lease.holder, expires_at, lease.token)

    def release_lease(self, lease: Lease) -> None:
        """Release the lease. Does nothing if another holder has taken it."""
        batch = self._client.batch()
        option = self._client.write_option(last_update_time=lease.token)
        batch.delete(self._client.document(f"{LEASES}/{lease.name}"), option)
        with suppress(ConflictError):
            commit(batch, f"release the lease {lease.name}")

    def _write_lease(
        self, name: str, holder: str, expires_at: datetime, update_time: object
    ) -> Lease | None:
        """Return None if another writer has changed the lease since `update_time`."""
        batch = self._client.batch()
        self._write(
            batch, f"{LEASES}/{name}", {"expires_at": expires_at, "holder": holder}, update_time
        )
        try:
            commit(batch, f"write the lease {name}")
        except (ConflictError, ExistsError):
            return None
        results: Any = batch.write_results
        return Lease(name, results[0].update_time, holder)


class Incidents(Database):
    """Stored facts that belong to no job: rejected submissions, orphans (VMs whose job does not
    exist), and outcomes of requests for VMs.

    Adapter of `trainmaster.ports.store.Incidents`, whose docstrings are the contract.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._noted: dict[tuple[str, str], Outcome] = {}
        """The outcomes that this process wrote last."""

    def reject(self, rejection: Rejection) -> None:
        """Store the rejection. Idempotent by its key."""
        self._create_once(f"{REJECTIONS}/{rejection.key}", rejection_document(rejection))

    def rejections(self, limit: int = 100, source: str | None = None) -> tuple[Rejection, ...]:
        """Return at most `limit` rejections: the newest first of all sources; or those of one
        source, such as an uploaded file, in any order.
        """
        if source is None:
            query = self._client.collection(REJECTIONS).order_by("at", direction="DESCENDING")
        else:
            query = self._where(REJECTIONS, ("source", "==", source))
        return tuple(
            read(Rejection, snapshot.to_dict()) for snapshot in self._find(query.limit(limit))
        )

    def report_orphan(self, orphan: Orphan) -> None:
        """Store the orphan. Idempotent by instance id: the first report stays."""
        self._create_once(f"{ORPHANS}/{orphan.instance_id}", orphan_document(orphan))

    def orphans(self) -> tuple[Orphan, ...]:
        """Return all orphans that were reported and not forgotten."""
        return tuple(
            read(Orphan, snapshot.to_dict())
            for snapshot in self._find(self._client.collection(ORPHANS))
        )

    def forget_orphan(self, instance_id: str) -> None:
        """Delete the report of the orphan. Idempotent."""
        batch = self._client.batch()
        batch.delete(self._client.document(f"{ORPHANS}/{instance_id}"))
        commit(batch, f"forget orphan {instance_id}")

    def note_outcome(self, outcome: Outcome) -> None:
        """Overwrite the stored outcome of this zone and kind of machine.

        An outcome that this process wrote less than `NOTED_FOR` ago is not written again.

        Two that are written in the wrong order are only moments apart, which does no harm.
        """
        noted = self._noted.get(outcome.key)
        if noted and noted.is_created == outcome.is_created and outcome.at - noted.at < NOTED_FOR:
            return
        batch = self._client.batch()
        batch.set(self._client.document(_outcome_path(outcome.key)), outcome_document(outcome))
        commit(batch, f"note what {outcome.zone} had capacity for")
        self._noted[outcome.key] = outcome

    def outcomes(self, keys: Sequence[tuple[str, str]]) -> tuple[Outcome, ...]:
        """Return the stored outcomes with these keys, pairs of zone and kind of machine."""
        if not keys:
            return ()
        snapshots = self._get(*map(_outcome_path, keys))
        return tuple(read(Outcome, snapshot.to_dict()) for snapshot in snapshots.values())

    def stockouts(self, since: datetime) -> tuple[Outcome, ...]:
        """Return the outcomes of `since` and later in which no VM was created."""
        snapshots = self._find(self._where(CAPACITY, ("at", ">=", since)))
        outcomes = (read(Outcome, snapshot.to_dict()) for snapshot in snapshots)
        return tuple(outcome for outcome in outcomes if not outcome.is_created)


def _outcome_path(key: tuple[str, str]) -> str:
    """Return the path of an outcome's document. `key`: zone and kind of machine."""
    zone, kind = key
    # The text of a kind may have slashes and be longer than the id of a document.
    return f"{CAPACITY}/{zone}-{hashlib.sha256(kind.encode()).hexdigest()[:16]}"


class FirestoreStore(States, Ledgers, JobQueries, Leases, Incidents):
    """All durable state, in Firestore. Thread-safe, as its client is.

    Adapter of `trainmaster.ports.Store`, in parts. Methods raise TemporaryError or PermanentError
    for errors of Firestore, beside what their docstrings say.
    """
