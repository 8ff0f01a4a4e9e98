"""The part of the Store in memory whose facts belong to no stored job."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime

from trainmaster.core.model.capacity import Outcome
from trainmaster.ports import Orphan, Rejection


class Incidents:
    """See `trainmaster.ports.Incidents`."""

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
        with self._lock:
            self._rejections.setdefault(rejection.key, rejection)

    def rejections(self, limit: int = 100, source: str | None = None) -> tuple[Rejection, ...]:
        with self._lock:
            found = list(self._rejections.values())
        if source is not None:
            found = [rejection for rejection in found if rejection.source == source]
        found.sort(key=lambda rejection: rejection.at, reverse=True)
        return tuple(found[:limit])

    def note_outcome(self, outcome: Outcome) -> None:
        with self._lock:
            previous = self._outcomes.get(outcome.key)
            if previous is None or previous.at <= outcome.at:
                self._outcomes[outcome.key] = outcome

    def outcomes(self, keys: Sequence[tuple[str, str]]) -> tuple[Outcome, ...]:
        with self._lock:
            return tuple(self._outcomes[key] for key in keys if key in self._outcomes)

    def stockouts(self, since: datetime) -> tuple[Outcome, ...]:
        with self._lock:
            latest = [outcome for outcome in self._outcomes.values() if outcome.at >= since]
        return tuple(outcome for outcome in latest if not outcome.is_created)

    def report_orphan(self, orphan: Orphan) -> None:
        with self._lock:
            self._orphans.setdefault(orphan.instance_id, orphan)

    def orphans(self) -> tuple[Orphan, ...]:
        with self._lock:
            return tuple(self._orphans.values())

    def forget_orphan(self, instance_id: str) -> None:
        with self._lock:
            self._orphans.pop(instance_id, None)
