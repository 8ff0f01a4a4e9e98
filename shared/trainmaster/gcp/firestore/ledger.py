"""Ledgers of jobs: their entries, and which of them have effects or notifications that are not
confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from google.cloud.firestore import DELETE_FIELD, DocumentSnapshot
from google.cloud.firestore_v1.base_query import FieldFilter

from trainmaster.core.events import End
from trainmaster.core.ledger import LedgerEntry, ends_of
from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.database import LEDGER, Database, commit, ledger_path, read_or_log
from trainmaster.gcp.firestore.documents import NOTIFICATION_PENDING, read
from trainmaster.ports import COMMIT_MAX, LOSSES_READ, Loaded, PendingEntries

COMMITTED_AT: Final = "committed_at"
"""Field with Firestore's time of the commit.

An import of an export keeps it, but not the document's create time.
"""
MARK_TRIES: Final = 5
"""How often `mark_done` reads again after another writer confirmed some of the same entries."""


class Ledgers(Database):
    """See `trainmaster.ports.Store`."""

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        path = f"{ledger_path(job_id)}/{key}"
        snapshot = self._get(path).get(path)
        return read(LedgerEntry, snapshot.to_dict()) if snapshot else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        return _in_order_of_commits(self._find(self._client.collection(ledger_path(job_id))))

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        return _in_order_of_commits(
            self._find(self._where(ledger_path(job_id), ("at", ">=", moment)))
        )

    def round_ends(self, job_id: str, round_key: str) -> tuple[End, ...]:
        query = (
            self._where(ledger_path(job_id), ("round", "==", round_key))
            .order_by("rank")
            .order_by("ended_at")
        )
        return ends_of(
            read(LedgerEntry, snapshot.to_dict()) for snapshot in self._find(query.limit(ENDS_READ))
        )

    def losses_after(self, job_id: str, round_key: str, entry_key: str) -> tuple[End, ...]:
        """See the port. What was committed after the entry is decided by Firestore's times of the
        commits, not by the times in the entries.
        """
        path = f"{ledger_path(job_id)}/{entry_key}"
        entry = self._get(path, fields=["at", COMMITTED_AT]).get(path)
        if entry is None:
            return ()
        since = entry.get("at") - COMMIT_MAX
        losses = self._where(
            ledger_path(job_id),
            ("round", "==", round_key),
            ("rank", "==", 0),
            ("ended_at", ">=", since),
        )
        return ends_of(
            read(LedgerEntry, snapshot.to_dict())
            for snapshot in self._find(losses.order_by("ended_at").limit(LOSSES_READ))
            if _committed_at(snapshot) > _committed_at(entry)
        )

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        query = self._where(ledger_path(job_id), ("is_pending", "==", True)).select(["__name__"])
        return tuple(snapshot.id for snapshot in self._find(query))

    def count_pending(self, job_id: str) -> int:
        return self._count(self._where(ledger_path(job_id), ("is_pending", "==", True)))

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        """See the port. What the loaded state includes is decided by comparing Firestore's times of
        the commits with its time of the read. Equal times count as later.
        """
        query = self._where(
            ledger_path(loaded.state.job.job_id), ("is_pending", "==", True)
        ).select(["__name__"])
        entries = self._find(query)
        included = tuple(entry.id for entry in entries if entry.create_time < loaded.read_at)
        later = tuple(entry.id for entry in entries if entry.create_time >= loaded.read_at)
        tokens = {entry.id: entry.update_time for entry in entries}
        return PendingEntries(included, later, tokens)

    def is_pending(self, job_id: str, key: str) -> bool:
        path = f"{ledger_path(job_id)}/{key}"
        snapshot = self._get(path, fields=["is_pending"]).get(path)
        return snapshot is not None and bool(snapshot.get("is_pending"))

    def mark_done(
        self,
        job_id: str,
        keys: Sequence[str],
        at: datetime,
        tokens: Mapping[str, object] | None = None,
    ) -> None:
        """Write only entries that are pending, as they were read: the time of an earlier
        confirmation stays.
        """
        known = tokens or {}
        pending = {key: known[key] for key in keys if key in known}
        if len(pending) < len(keys):
            pending = self._read_pending(job_id, keys)
        for _ in range(MARK_TRIES):
            if not pending:
                return
            batch = self._client.batch()
            for key, update_time in pending.items():
                entry = self._client.document(f"{ledger_path(job_id)}/{key}")
                option = self._client.write_option(last_update_time=update_time)
                batch.update(entry, {"is_pending": False, "done_at": at}, option)
            try:
                commit(batch, f"mark entries of {job_id} done")
            except ConflictError:
                pending = self._read_pending(job_id, keys)
                continue
            return
        raise ConflictError(f"{job_id}: other writers kept marking the same ledger entries as done")

    def _read_pending(self, job_id: str, keys: Sequence[str]) -> dict[str, object]:
        """Return those of the entries that are pending: key → update time."""
        paths = [f"{ledger_path(job_id)}/{key}" for key in keys]
        entries = self._get(*paths, fields=["is_pending"]) if paths else {}
        return {
            entry.id: entry.update_time for entry in entries.values() if entry.get("is_pending")
        }

    def jobs_with_pending(self) -> tuple[str, ...]:
        ledgers = self._client.collection_group(LEDGER)
        query = ledgers.where(filter=FieldFilter("is_pending", "==", True)).select(["job_id"])
        return tuple(sorted({snapshot.get("job_id") for snapshot in self._find(query)}))

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        """Write without a precondition.

        Concurrent writers write the same values, except for the time, which nothing reads.
        """
        batch = self._client.batch()
        entry = self._client.document(f"{ledger_path(job_id)}/{key}")
        batch.update(entry, {NOTIFICATION_PENDING: DELETE_FIELD, "notified_at": at})
        with suppress(ConflictError):  # the entry expired meanwhile
            commit(batch, f"confirm the notification of {job_id} {key}")

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        ledgers = self._client.collection_group(LEDGER)
        query = ledgers.where(filter=FieldFilter(NOTIFICATION_PENDING, "==", True)).limit(limit)
        entries = (read_or_log(LedgerEntry, snapshot, "event") for snapshot in self._find(query))
        return tuple(entry for entry in entries if entry is not None)


def _in_order_of_commits(snapshots: list[DocumentSnapshot[Any]]) -> tuple[LedgerEntry, ...]:
    return tuple(
        read(LedgerEntry, snapshot.to_dict()) for snapshot in sorted(snapshots, key=_committed_at)
    )


def _committed_at(snapshot: DocumentSnapshot[Any]) -> tuple[datetime, datetime]:
    """Return the time of the commit. An imported entry has a later create time, which orders
    entries of the same commit time.
    """
    return snapshot.get(COMMITTED_AT), snapshot.create_time
