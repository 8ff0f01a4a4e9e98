"""The part of the Store in memory whose facts belong to no stored job.

`memory.store.MemoryStore` inherits them: rejected submissions, orphans (VMs whose job does not
exist), and outcomes of requests for VMs.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from trainmaster.core.model.capacity import Outcome
from trainmaster.ports import Orphan, Rejection


class Incidents:
    """Adapter of `trainmaster.ports.store.Incidents`, whose docstrings are the contract.
    Thread-safe.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._rejections: dict[str, Rejection] = {}
        self._orphans: dict[str, Orphan] = {}
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def copy_incidents(self, other: Incidents) -> None:
        """Replace all incidents by those of the other store."""
        self._rejections = dict(other._rejections)
        self._orphans = dict(other._orphans)
        self._outcomes = dict(other._outcomes)

    def reject(self, rejection: Rejection) -> None:
        """Store the rejection, unless there is one with its key."""
        with self._lock:
            self._rejections.setdefault(rejection.key, rejection)

    def rejections(self, limit: int = 100, source: str | None = None) -> tuple[Rejection, ...]:
        """Return at most `limit` rejections, the newest first; with `source`, those of this
        submission.
        """
        with self._lock:
            found = list(self._rejections.values())
        if source is not None:
            found = [rejection for rejection in found if rejection.source == source]
        found.sort(key=lambda rejection: rejection.at, reverse=True)
        return tuple(found[:limit])

    def note_outcome(self, outcome: Outcome) -> None:
        """Store the outcome, unless there is a later one of its zone and kind of machine."""
        with self._lock:
            previous = self._outcomes.get(outcome.key)
            if previous is None or previous.at <= outcome.at:
                self._outcomes[outcome.key] = outcome

    def outcomes(self, keys: Sequence[tuple[str, str]]) -> tuple[Outcome, ...]:
        """Return the stored outcomes with these keys, pairs of zone and kind of machine."""
        with self._lock:
            return tuple(self._outcomes[key] for key in keys if key in self._outcomes)

    def stockouts(self, since: datetime) -> tuple[Outcome, ...]:
        """Return the outcomes of `since` and later in which no VM was created."""
        with self._lock:
            latest = [outcome for outcome in self._outcomes.values() if outcome.at >= since]
        return tuple(outcome for outcome in latest if not outcome.is_created)

    def report_orphan(self, orphan: Orphan) -> None:
        """Store the orphan; the first report of an instance id stays."""
        with self._lock:
            self._orphans.setdefault(orphan.instance_id, orphan)

    def orphans(self) -> tuple[Orphan, ...]:
        """Return all orphans that were reported and not forgotten."""
        with self._lock:
            return tuple(self._orphans.values())

    def forget_orphan(self, instance_id: str) -> None:
        """Delete the report of the orphan, if there is one."""
        with self._lock:
            self._orphans.pop(instance_id, None)
