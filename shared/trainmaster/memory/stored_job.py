"""One job in the Store in memory: its document, its replicas and its ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica

AwayUntil = Callable[[Replica], datetime | None]

lost_until: AwayUntil = attrgetter("lost_until")
failed_until: AwayUntil = attrgetter("failed_until")


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

    def copy(self) -> StoredJob:
        return StoredJob(self.job, dict(self.replicas), dict(self.ledger), dict(self.commits))

    def peers_away(self, own: Replica, since: datetime | None, away_until: AwayUntil) -> tuple[Replica, ...]:
        """Return the peers that were away after `since`, the last to return first."""
        away = [
            (until, peer.key, peer)
            for peer in self.replicas.values()
            if peer.attempt == own.attempt and peer.key != own.key and (until := away_until(peer)) is not None
            if since is None or until >= since
        ]
        return tuple(peer for _, _, peer in sorted(away, key=lambda entry: entry[:2], reverse=True))
