"""Ledgers of jobs: their entries, and which of them have effects or notifications that are not
confirmed.

A ledger is the record of a job's events and decisions. An entry is *pending* until its effects,
such as a request for VMs, have happened. An *end* is the entry of a member that ended in a round, a
common start of the job's members; a *loss* is an end because the member's VM is gone.

The part of the Store that flows, commands and the console read ledgers with.
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
"""Most writes that `mark_done` tries. One fails if another writer has confirmed some of the same
entries.
"""


class Ledgers(Database):
    """Adapter of `trainmaster.ports.store.Ledgers`, whose docstrings are the contract.

    Methods raise TemporaryError or PermanentError for errors of Firestore (`Database`), and
    UnreadableError, a TemporaryError, for a document of another release.
    """

    def entry(self, job_id: str, key: str) -> LedgerEntry | None:
        """Return the entry with this key; None if there is none."""
        path = f"{ledger_path(job_id)}/{key}"
        snapshot = self._get(path).get(path)
        return read(LedgerEntry, snapshot.to_dict()) if snapshot else None

    def ledger(self, job_id: str) -> tuple[LedgerEntry, ...]:
        """Return all entries of the job, in the order of their commits."""
        return _in_order_of_commits(self._find(self._client.collection(ledger_path(job_id))))

    def ledger_since(self, job_id: str, moment: datetime) -> tuple[LedgerEntry, ...]:
        """Return the entries with `at` not before `moment`, in the order of their commits."""
        return _in_order_of_commits(
            self._find(self._where(ledger_path(job_id), ("at", ">=", moment)))
        )

    def round_ends(self, job_id: str, round_key: str) -> tuple[End, ...]:
        """Return the first `ENDS_READ` ends of members in this round, by rank and time."""
        query = (
            self._where(ledger_path(job_id), ("round", "==", round_key))
            .order_by("rank")
            .order_by("ended_at")
        )
        return ends_of(
            read(LedgerEntry, snapshot.to_dict()) for snapshot in self._find(query.limit(ENDS_READ))
        )

    def losses_after(self, job_id: str, round_key: str, entry_key: str) -> tuple[End, ...]:
        """Return the losses of this round that were committed after the entry with `entry_key`.

        Only losses that were reported at most `COMMIT_MAX` before the entry count; the first
        `LOSSES_READ` are read. What was committed after the entry is decided by Firestore's times
        of the commits, not by the times in the entries.
        """
        path = f"{ledger_path(job_id)}/{entry_key}"
        entry = self._get(path, fields=["at", COMMITTED_AT]).get(path)
        if entry is None:
            return ()
        since = entry.get("at") - COMMIT_MAX
        losses = self._where(
            ledger_path(job_id),
            ("round", "==", round_key),
            ("rank", "==", 0),  # of an end by the loss of its machine
            ("ended_at", ">=", since),
        )
        return ends_of(
            read(LedgerEntry, snapshot.to_dict())
            for snapshot in self._find(losses.order_by("ended_at").limit(LOSSES_READ))
            if _committed_at(snapshot) > _committed_at(entry)
        )

    def pending_keys(self, job_id: str) -> tuple[str, ...]:
        """Return the keys of the job's pending entries. Reads no field of them."""
        query = self._where(ledger_path(job_id), ("is_pending", "==", True)).select(["__name__"])
        return tuple(snapshot.id for snapshot in self._find(query))

    def count_pending(self, job_id: str) -> int:
        """Return how many entries of the job are pending."""
        return self._count(self._where(ledger_path(job_id), ("is_pending", "==", True)))

    def pending_entries(self, loaded: Loaded) -> PendingEntries:
        """Return the keys of the job's pending entries: those that the loaded state includes, and
        later ones.

        Compares Firestore's times of the commits with its time of the read. Equal times count as
        later. `loaded` is the result of `load_attempt`.
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
        """Return whether the entry exists and is pending."""
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
        """Confirm the effects of these entries. Idempotent.

        Writes only entries that are pending, as they were read: the time of an earlier confirmation
        stays. `tokens`: those of `PendingEntries`, by key; without the token of every entry, all
        are read again.
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
        """Return the ids of all jobs that have pending entries, sorted."""
        ledgers = self._client.collection_group(LEDGER)
        query = ledgers.where(filter=FieldFilter("is_pending", "==", True)).select(["job_id"])
        return tuple(sorted({snapshot.get("job_id") for snapshot in self._find(query)}))

    def confirm_notification(self, job_id: str, key: str, at: datetime) -> None:
        """Note that the entry's notification was published. Idempotent.

        Writes without a precondition: concurrent writers write the same values, except for the
        time, which nothing reads.
        """
        batch = self._client.batch()
        entry = self._client.document(f"{ledger_path(job_id)}/{key}")
        batch.update(entry, {NOTIFICATION_PENDING: DELETE_FIELD, "notified_at": at})
        with suppress(ConflictError):  # the entry expired meanwhile
            commit(batch, f"confirm the notification of {job_id} {key}")

    def open_notifications(self, limit: int) -> tuple[LedgerEntry, ...]:
        """Return at most `limit` entries of all jobs whose notifications are not confirmed.

        Entries that this release cannot read are logged as errors and left out.
        """
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
