"""Numbers of jobs by state, counted in threads, so that a page waits for them only a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import Final

from cachetools import LRUCache

from trainmaster.core.model.job import JobState, Label
from trainmaster.ports import Store

WAIT_S: Final = 0.3
"""Seconds that a page waits. A few thousand jobs are counted within a tenth of them."""
LABELS_MAX: Final = 256
"""Labels whose counts are kept."""
COUNTED_AT_ONCE: Final = 4
"""Labels whose jobs are counted at the same time."""
JOBS_PER_READ: Final = 1_000
"""Index entries that Firestore counts for the price of one read."""

_log = logging.getLogger(__name__)

ByState = Mapping[JobState, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """Counts, and until when they need not be counted again, by the counter's timer."""

    by_state: ByState
    kept_until: float


class JobCounter:
    """Counts the jobs of a store for all open pages. Thread-safe.

    Firestore charges a read for each `JOBS_PER_READ` jobs of a state. A count is kept for one
    second per read beyond the first of each state, so that the reads per second do not grow with
    the number of jobs.
    """

    def __init__(
        self,
        store: Store,
        wait_s: float | None = WAIT_S,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait_s`: how long a page waits for its counts; None: until they are known."""
        self._store = store
        self._wait_s = wait_s
        self._timer = timer
        self._known: LRUCache[Label | None, _Known] = LRUCache(LABELS_MAX)
        self._running: dict[Label | None, Future[ByState]] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(COUNTED_AT_ONCE, "count-jobs")

    def counts(self, label: Label | None, *, waits: bool = False) -> ByState | None:
        """Return how many jobs are in each state; with `label`, only jobs that have it.

        If counting takes longer than a page waits, return the latest counts, or None if there are
        none yet; a later call has the new ones. `waits`: wait until the jobs are counted.

        Raises TemporaryError and PermanentError if the store fails while the caller waits.
        """
        with self._lock:
            known = self._known.get(label)
            if known is not None and self._timer() < known.kept_until:
                return known.by_state
            running = self._running.get(label)
            if running is None:
                running = self._pool.submit(self._count, label)
                self._running[label] = running
        wait([running], None if waits else self._wait_s)
        if running.done():
            return running.result()
        return known.by_state if known is not None else None

    def _count(self, label: Label | None) -> ByState:
        try:
            by_state = self._store.count_by_state(label)
        except Exception as error:
            _log.warning("Cannot count the jobs: %s", error)
            with self._lock:
                del self._running[label]
            raise
        further_reads = sum(count // JOBS_PER_READ for count in by_state.values())
        with self._lock:
            self._known[label] = _Known(by_state, self._timer() + further_reads)
            del self._running[label]
        return by_state
