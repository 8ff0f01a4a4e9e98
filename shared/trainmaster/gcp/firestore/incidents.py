"""Stored facts that belong to no job: rejected submissions, orphaned VMs, and recent stockouts."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from trainmaster.core.reconcile.zone_order import Stockout
from trainmaster.gcp.firestore.database import Database, commit
from trainmaster.gcp.firestore.documents import orphan_document, read, rejection_document, stockout_document
from trainmaster.ports import Orphan, Rejection

REJECTIONS: Final = "rejections"
ORPHANS: Final = "orphans"
STOCKOUTS: Final = "stockouts"


class Incidents(Database):
    """See `trainmaster.ports.Store`."""

    def reject(self, rejection: Rejection) -> None:
        self._create_once(f"{REJECTIONS}/{rejection.key}", rejection_document(rejection))

    def rejections(self) -> tuple[Rejection, ...]:
        return tuple(
            read(Rejection, snapshot.to_dict()) for snapshot in self._find(self._client.collection(REJECTIONS))
        )

    def report_orphan(self, orphan: Orphan) -> None:
        self._create_once(f"{ORPHANS}/{orphan.instance_id}", orphan_document(orphan))

    def orphans(self) -> tuple[Orphan, ...]:
        return tuple(read(Orphan, snapshot.to_dict()) for snapshot in self._find(self._client.collection(ORPHANS)))

    def forget_orphan(self, instance_id: str) -> None:
        batch = self._client.batch()
        batch.delete(self._client.document(f"{ORPHANS}/{instance_id}"))
        commit(batch, f"forget orphan {instance_id}")

    def note_stockout(self, stockout: Stockout) -> None:
        """Overwrite the stored stockout. Two that are written in the wrong order are only moments apart, which does no
        harm."""
        key = f"{stockout.zone}-{hashlib.sha256(stockout.kind.encode()).hexdigest()[:16]}"
        batch = self._client.batch()
        batch.set(self._client.document(f"{STOCKOUTS}/{key}"), stockout_document(stockout))
        commit(batch, f"note the stockout in {stockout.zone}")

    def stockouts(self, since: datetime) -> tuple[Stockout, ...]:
        snapshots = self._find(self._where(STOCKOUTS, ("at", ">=", since)))
        return tuple(read(Stockout, snapshot.to_dict()) for snapshot in snapshots)
