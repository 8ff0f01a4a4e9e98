"""Rounds: the members of a synchronous job stop and start as a whole.

    running ──► a member fails, or loses its VM ──► held: every member stops, and reports ready
       ▲                                                                    │
       └────────────── all are ready: one verdict on the round that ended ──┘

A round is the incarnation of all members: directives and events carry its number. It begins with 1
in each attempt, held like all others. When the first round of a job begins, the job is RUNNING.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.replica_id import ReplicaId


@dataclass(frozen=True, slots=True)
class Saving:
    """The end of one member's VM was announced, so that the programs of all members save."""

    by: ReplicaId
    """The member whose VM goes."""
    at: datetime
    """When it was recorded."""
    gives_up_at: datetime
    """When its agent requests another VM at the latest."""
    silent: tuple[ReplicaId, ...] = ()
    """Members whose agents did not answer it through the peer channel. Directives tell them."""
    grows: bool = False
    """Whether no VM goes: members that the round goes without can join the next one, or the job
    ends. `by` is then the primary, whose directive lets its agent ask the others.
    """
    ends: bool = False
    """Whether the job is cancelled afterwards, because it is about to cost its `maxCost`."""


@dataclass(frozen=True, slots=True)
class Round:
    """The current round of a synchronous job. Jobs of any other kind keep the default."""

    number: int = 1
    """Number of the round within the attempt."""
    is_held: bool = False
    """Whether its members wait until all of them are ready."""
    began_at: datetime | None = None
    """When this round began or, while it is held, the one before it. None: none has begun."""
    ordered_at: datetime | None = None
    """When the round before it ended; of the first one, when the job was accepted."""
    stopped_by: ReplicaId | None = None
    """Member whose end, or whose VM's loss, ended the round before it."""
    quick_failures: int = 0
    """Rounds in a row, over all attempts, that a failure soon after the start ended.

    They lengthen the pause before the next start.
    """
    bug: str | None = None
    """Signature that the next verdict must repeat to prove a bug (`core.rules.repetition`); None if
    none can.
    """
    saving: Saving | None = None
    """Set while a round runs in which all members save; if the job ends then, also while the next
    one is held. Jobs that are not synchronous have only this last kind.
    """
    without: tuple[ReplicaId, ...] = ()
    """Members that this round or, while it is held, the one before it goes without
    (`Restarts.elastic`). They are held.
    """
    refused_at: datetime | None = None
    """While an elastic round is held: when a VM was first refused in that time."""
    grown_at: datetime | None = None
    """When a round last began with a member that the round before it went without."""
    failing: FailureRow | None = None
    """Failures in a row, over all attempts; None if the last round did not end by a failure."""

    @property
    def ends_job(self) -> bool:
        """Whether the job is cancelled after the save of this round."""
        return self.saving is not None and self.saving.ends
