"""One job in the Store in memory: its document, its replicas and its ledger.

A *ledger* is the record of the job's events and decisions. Only `memory.store` uses this.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica


@dataclass
class StoredJob:
    """A job with everything that is stored about it."""

    job: Job
    replicas: dict[str, Replica] = field(default_factory=dict)
    """By key, in the order of the first writes."""
    ledger: dict[str, LedgerEntry] = field(default_factory=dict)
    """By key, in the order of the commits."""
    commits: dict[str, int] = field(default_factory=dict)
    """Number of the commit that created an entry, by the entry's key."""
    pending: dict[str, None] = field(default_factory=dict)
    """Keys of the entries whose effects, such as a request for VMs, have not been confirmed, in the
    order of the commits.
    """

    def copy(self) -> StoredJob:
        """Return a copy that can be changed independently; the values in it are immutable."""
        return StoredJob(
            self.job, dict(self.replicas), dict(self.ledger), dict(self.commits), dict(self.pending)
        )
