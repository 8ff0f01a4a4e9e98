"""The ledger: one entry per event of a job.

Creating the entry is the duplicate check. Folding all entries of a job, in the order of their commits, rebuilds its
stored state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.actions import AcceptJob
from trainmaster.core.decisions import Decision
from trainmaster.core.events import End, Event
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.rules.evidence import end_in
from trainmaster.core.transitions.change import Effect


@dataclass(frozen=True, slots=True)
class Counters:
    """Use of the budgets when an event was judged: those of the job, and of the replica that the event is about."""

    attempt: int = 0
    reruns_used: int = 0
    """Charged reruns of the job."""
    internal_used: int = 0
    """Internal retries of the job."""
    restarts_used: int = 0
    """Charged restarts of the replica in this attempt."""
    replaced: int = 0
    """Replacements of its VM in this attempt."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An event, and what was decided about it."""

    job_id: str
    key: str
    """Key of the event."""
    at: datetime
    """The `now` that the rules saw."""
    event: Event
    decision: Decision
    before: Counters
    """Use of the budgets before the decision."""
    after: Counters
    """Use of the budgets after it."""
    effects: tuple[Effect, ...] = ()
    """Messages to publish after the commit."""
    job_state: JobState | None = None
    """State of the job after the decision. None in entries of releases before the notifications."""
    round: str | None = None
    """`ATTEMPT-ROUND` if the event reports an end of a member; None: it reports none."""
    rank: int | None = None
    """Rank of this end (`core.rules.verdict`)."""
    ended_at: datetime | None = None
    """When it ended."""
    done_at: datetime | None = None
    """When the effects except NOTIFY were confirmed."""
    notified_at: datetime | None = None
    """When the effect NOTIFY was confirmed."""

    @property
    def is_pending(self) -> bool:
        """Whether a request to provision or to tune has not been confirmed. Notifications have their own state."""
        return any(effect is not Effect.NOTIFY for effect in self.effects) and self.done_at is None

    @property
    def is_notification_pending(self) -> bool:
        return Effect.NOTIFY in self.effects and self.notified_at is None


def ends_of(entries: Iterable[LedgerEntry]) -> tuple[End, ...]:
    """Return the ends of members that these entries report."""
    return tuple(end for entry in entries if (end := end_in(entry.event)) is not None)


def counters(state: State | None, replica_key: str | None) -> Counters:
    """Return the current use of the budgets. A replica that was not loaded counts as zero."""
    if state is None:
        return Counters()
    budgets = state.job.budgets
    replica = next((replica for replica in state.replicas if replica.key == replica_key), None)
    return Counters(
        attempt=state.job.attempt,
        reruns_used=budgets.reruns_used,
        internal_used=budgets.internal_used,
        restarts_used=replica.restarts_used if replica else 0,
        replaced=replica.replaced if replica else 0,
    )


def replay(state: State | None, entry: LedgerEntry) -> State | None:
    """Return the state after one entry. None stays None until the entry that accepts the job."""
    change = evolve(state, entry.decision, entry.at)
    if isinstance(entry.decision.action, AcceptJob):
        return State(entry.decision.action.job, change.replicas, whole=True)
    return None if state is None else apply(state, change)


def fold(entries: Iterable[LedgerEntry]) -> State | None:
    """Return the state that these entries lead to, in the order of their commits; None if there are none."""
    state: State | None = None
    for entry in entries:
        state = replay(state, entry)
    return state
