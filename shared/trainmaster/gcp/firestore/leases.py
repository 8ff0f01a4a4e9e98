"""Leases on work: the holder of a lease does the work alone, until the lease expires."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from trainmaster.errors import ConflictError
from trainmaster.gcp.firestore.database import Database, ExistsError, commit
from trainmaster.ports import Lease

LEASES: Final = "leases"


class Leases(Database):
    """See `trainmaster.ports.Store`."""

    def take_lease(self, name: str, now: datetime, expires_at: datetime, holder: str = "") -> Lease | None:
        path = f"{LEASES}/{name}"
        snapshot = self._get(path).get(path)
        if snapshot is None:
            return self._write_lease(name, holder, expires_at, None)
        lease = snapshot.to_dict() or {}
        if lease["expires_at"] > now and not (holder and holder == lease.get("holder")):
            return None
        return self._write_lease(name, holder, expires_at, snapshot.update_time)

    def extend_lease(self, lease: Lease, expires_at: datetime) -> Lease | None:
        return self._write_lease(lease.name, lease.holder, expires_at, lease.token)

    def release_lease(self, lease: Lease) -> None:
        batch = self._client.batch()
        option = self._client.write_option(last_update_time=lease.token)
        batch.delete(self._client.document(f"{LEASES}/{lease.name}"), option)
        with suppress(ConflictError):
            commit(batch, f"release the lease {lease.name}")

    def _write_lease(self, name: str, holder: str, expires_at: datetime, update_time: object) -> Lease | None:
        """Return None if another writer has changed the lease since `update_time`."""
        batch = self._client.batch()
        self._write(batch, f"{LEASES}/{name}", {"expires_at": expires_at, "holder": holder}, update_time)
        try:
            commit(batch, f"write the lease {name}")
        except (ConflictError, ExistsError):
            return None
        results: Any = batch.write_results
        return Lease(name, results[0].update_time, holder)
