"""The leases of the Store in memory. They are independent of the stored jobs."""

from __future__ import annotations

import threading
from datetime import datetime

from trainmaster.ports import Lease


class Leases:
    """Adapter of `trainmaster.ports.store.Leases`. Thread-safe.

    Until a lease expires, only its holder works on the job that it names. A lease gets another
    token each time it is taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lease_lock = threading.Lock()
        self._leases: dict[str, tuple[Lease, datetime]] = {}
        """Name → the lease of its holder, and when it expires."""

    def copy_leases(self, other: Leases) -> None:
        """Replace all leases by those of the other store."""
        with other._lease_lock:
            self._leases = dict(other._leases)

    def take_lease(
        self, name: str, now: datetime, expires_at: datetime, holder: str = ""
    ) -> Lease | None:
        """Return the lease. None: another holder has it, and it has not expired at `now`.

        `holder`: id of the message that the holder handles, so that its redelivery gets the lease
        back; empty: unknown.
        """
        with self._lease_lock:
            if name in self._leases:
                taken, end = self._leases[name]
                is_own = holder != "" and holder == taken.holder
                if end > now and not is_own:
                    return None
            lease = Lease(name, object(), holder)
            self._leases[name] = (lease, expires_at)
            return lease

    def extend_lease(self, lease: Lease, expires_at: datetime) -> Lease | None:
        """Return the lease with a later end. None: another holder has taken it meanwhile."""
        with self._lease_lock:
            if not self._holds(lease):
                return None
            self._leases[lease.name] = (lease, expires_at)
            return lease

    def release_lease(self, lease: Lease) -> None:
        """Release the lease. Does nothing if another holder has taken it."""
        with self._lease_lock:
            if self._holds(lease):
                del self._leases[lease.name]

    def _holds(self, lease: Lease) -> bool:
        """Return whether this lease is the one that was taken last."""
        taken, _ = self._leases.get(lease.name, (None, None))
        return taken is not None and taken.token is lease.token
