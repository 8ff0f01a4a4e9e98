"""The part of the Store in memory whose facts belong to no stored job."""

from __future__ import annotations

import threading
from datetime import datetime

from trainmaster.core.reconcile.zone_order import Stockout
from trainmaster.ports import Orphan, Rejection


class Incidents:
    """Rejected job files, orphaned VMs, and zones without capacity. See `trainmaster.ports.Store`."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._rejections: dict[str, Rejection] = {}
        self._orphans: dict[str, Orphan] = {}
        self._stockouts: dict[tuple[str, str], Stockout] = {}

    def copy_incidents(self, other: Incidents) -> None:
        """Replace all incidents by those of the other store."""
        self._rejections, self._orphans = dict(other._rejections), dict(other._orphans)
        self._stockouts = dict(other._stockouts)

    def reject(self, rejection: Rejection) -> None:
        with self._lock:
            self._rejections.setdefault(rejection.key, rejection)

    def rejections(self, limit: int = 100, source: str | None = None) -> tuple[Rejection, ...]:
        with self._lock:
            stored = [one for one in self._rejections.values() if source is None or one.source == source]
        return tuple(sorted(stored, key=lambda rejection: rejection.at, reverse=True)[:limit])

    def note_stockout(self, stockout: Stockout) -> None:
        with self._lock:
            key = (stockout.zone, stockout.kind)
            previous = self._stockouts.get(key)
            if previous is None or previous.at < stockout.at:
                self._stockouts[key] = stockout

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        with self._lock:
            return tuple(stockout for stockout in self._stockouts.values() if stockout.at >= since)

    def report_orphan(self, orphan: Orphan) -> None:
        with self._lock:
            self._orphans.setdefault(orphan.instance_id, orphan)

    def orphans(self) -> tuple[Orphan, ...]:
        with self._lock:
            return tuple(self._orphans.values())

    def forget_orphan(self, instance_id: str) -> None:
        with self._lock:
            self._orphans.pop(instance_id, None)
