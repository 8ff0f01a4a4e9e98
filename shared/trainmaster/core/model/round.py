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
from enum import StrEnum

from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.replica_id import ReplicaId


class SaveCause(StrEnum):
    """Why the programs are asked to save."""

    NOTICE = "notice"  # the end of a member's VM is announced
    GROWTH = "growth"  # members that the round goes without can join
    CAP = "cap"  # the job is cancelled, because it is about to cost its `maxCost`


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """A request to all programs to save a checkpoint, because the round is about to end."""

    number: int
    """Number of the request among those of the round, from 1. Directives and reports carry the
    number, so that a late one of an earlier request is recognized.
    """
    at: datetime
    """When it was recorded."""
    until: datetime
    """Latest time of the event that the request is made for: the VM is given up, the round ends, or
    the job is cancelled.
    """
    why: SaveCause
    asked: tuple[ReplicaId, ...] = ()
    """Replicas that directives ask. The agents of members ask each other, so these are members that
    did not answer, the primary if its agent is to ask the others, and replicas that are no members.
    """


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
    saving: SaveRequest | None = None
    """The last request to save of this round; None: there was none. One of the kind `CAP` stays
    while the next round is held. It is the only kind in jobs that are not synchronous.
    """
    without: tuple[ReplicaId, ...] = ()
    """Members that this round or, while it is held, the one before it goes without
    (`Restarts.elastic`). They are held.
    """
    grown_at: datetime | None = None
    """When a round last began with a member that the round before it went without."""
    failing: FailureRow | None = None
    """Failures in a row, over all attempts; None if the last round did not end by a failure."""

    @property
    def ends_job(self) -> bool:
        """Whether the job is cancelled after the save of this round."""
        return self.saving is not None and self.saving.why is SaveCause.CAP

    @property
    def next_save(self) -> int:
        """Number of the next request to save."""
        return self.saving.number + 1 if self.saving is not None else 1
