"""Caches of what the console reads often: the ledgers of jobs, and answers of Cloud Monitoring.

A ledger is a job's record of events and decisions. It only grows, except that entries whose effects
are pending are marked later as done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from cachetools import LRUCache, TTLCache, cached

from trainmaster.core.actions import CancelJob, CompleteTuning, FailJob, SucceedJob
from trainmaster.core.ledger import LedgerEntry
from trainmaster.ports import Store
from trainmaster.ports.metrics import MetricQuery, MetricReader, MetricSeries

ENTRIES_MAX: Final = 50_000
"""Entries of all jobs in the cache: about 100 MiB."""
REREAD_AFTER_S: Final = 600.0
"""Time after which a ledger is read as a whole again: an entry may be committed long after its
`at`.
"""
OVERLAP: Final = timedelta(seconds=60)
"""How far back entries are read again: longer than a function runs between its decision and its
commit.
"""
METRICS_KEPT_S: Final = 60.0
"""Seconds for which an answer of Cloud Monitoring is kept: agents report once a minute."""
QUERIES_MAX: Final = 256
"""Answers of Cloud Monitoring that are kept."""

_ENDS: Final = (SucceedJob, FailJob, CancelJob, CompleteTuning)
"""Actions that end a job."""

Entries = tuple[LedgerEntry, ...]
"""A ledger, in the order of its commits."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The ledger of a job in the cache. Times are those of the cache's timer."""

    entries: Entries
    read_at: float
    """When the ledger was last read as a whole."""
    refreshed_at: float
    """When it was last read at all."""
    newest_seen_at: float
    """When the newest entry was first seen: no earlier than the entry's `at`."""

    def since(self, newest: datetime) -> datetime:
        """Return the time from which entries are read again: that of the last read, less `OVERLAP`.

        `newest`: the latest `at` of a known entry.

        The clock of this machine may be wrong. So the time of the last read is that `at`, by the
        writer's clock, and what our own timer has counted since the entry was first seen.
        """
        until_last_read = timedelta(seconds=self.refreshed_at - self.newest_seen_at)
        return newest + until_last_read - OVERLAP


class LedgerCache:
    """Reads the ledgers of jobs once, and after that only their new entries. Thread-safe.

    A page that is open polls every few seconds. Reading a whole ledger each time would cost a read
    per entry.
    """

    def __init__(self, store: Store, timer: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._timer = timer
        self._known: LRUCache[str, _Known] = LRUCache(
            ENTRIES_MAX, getsizeof=lambda known: len(known.entries) + 1
        )
        self._lock = Lock()

    def entries(self, job_id: str, *, has_ended: bool) -> Entries:
        """Return the job's ledger in the order of its commits.

        `has_ended`: whether the stored job has ended.
        """
        with self._lock:
            known = self._known.get(job_id)
            now = self._timer()
            if known is None or now - known.read_at > REREAD_AFTER_S:
                known = self._read_whole(job_id, now)
            elif not (has_ended and _is_final(known.entries)):
                known = self._refresh(job_id, known, now)
            if len(known.entries) < ENTRIES_MAX:
                self._known[job_id] = known
            return known.entries

    def _read_whole(self, job_id: str, now: float) -> _Known:
        return _Known(self._store.ledger(job_id), read_at=now, refreshed_at=now, newest_seen_at=now)

    def _refresh(self, job_id: str, known: _Known, now: float) -> _Known:
        """Return what is known after a read of the recent entries, and of the pending ones."""
        newest = max((entry.at for entry in known.entries), default=None)
        if newest is None:
            return self._read_whole(job_id, now)
        recent = {
            entry.key: entry for entry in self._store.ledger_since(job_id, known.since(newest))
        }
        for entry in known.entries:
            if not entry.is_pending or entry.key in recent:
                continue
            again = self._store.entry(job_id, entry.key)
            if again is None:
                continue
            recent[entry.key] = again
            if again.is_pending:
                # So are the later ones: they are confirmed together with it, or after it.
                break
        is_newer = any(entry.at > newest for entry in recent.values())
        entries = (*(recent.pop(entry.key, entry) for entry in known.entries), *recent.values())
        return replace(
            known,
            entries=entries,
            refreshed_at=now,
            newest_seen_at=now if is_newer else known.newest_seen_at,
        )


def _is_final(entries: Entries) -> bool:
    """Return whether the entries contain the end of the job, and all of their effects are done."""
    return any(isinstance(entry.decision.action, _ENDS) for entry in entries) and not any(
        entry.is_pending for entry in entries
    )


class MetricCache:
    """A MetricReader in front of another one, whose answers are kept for a minute. Thread-safe.

    Agents report once a minute, and several tabs ask for the same.
    """

    def __init__(self, reader: MetricReader) -> None:
        cache: TTLCache[MetricQuery, Sequence[MetricSeries]] = TTLCache(QUERIES_MAX, METRICS_KEPT_S)
        self._read = cached(cache, key=lambda query: query, lock=Lock())(reader.read)

    def read(self, query: MetricQuery) -> Sequence[MetricSeries]:
        """Return the series, as `MetricReader.read` does. An error is not kept."""
        return self._read(query)
