"""The documents that must be loaded to judge an event."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.core.model.replica import replica_key
from trainmaster.core.model.replica_id import ReplicaId


@dataclass(frozen=True, slots=True)
class Reads:
    """Documents that must be loaded to judge an event, besides the job."""

    replica_id: ReplicaId | None = None
    """The replica that the event is about."""
    attempt: int = 0
    """The replica's attempt."""
    of_current_attempt: bool = False
    """Whether the event concerns the replica's VM, which outlives an attempt: if the job was rerun,
    the replica of the current attempt is loaded instead.
    """
    whole_attempt: bool = False
    """Whether to load all replicas of the current attempt."""
    requires_job: bool = True
    """Whether the event is an error if the job does not exist."""

    @property
    def replica_key(self) -> str | None:
        return replica_key(self.attempt, self.replica_id) if self.replica_id else None
