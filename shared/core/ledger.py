"""One entry per event: the inbox and the history in one. Creating it is the duplicate check; folding all of a job's
entries in the order of their commits rebuilds what is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from shared.core.decisions import AcceptJob, Decision
from shared.core.events import Event
from shared.core.evolve import apply, evolve
from shared.core.model.job import State


@dataclass(frozen=True, slots=True)
class Counters:
    """The named budgets' use as one event saw it: the job's, and those of the replica it was about."""

    attempt: int = 0
    reruns_used: int = 0
    internal_used: int = 0
    restarts_used: int = 0
    replaced: int = 0
    collateral: int = 0


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`at` is the `now` the judge saw. `effects` are desired by the change; `done_at` is when they were seen done."""

    job_id: str
    key: str
    at: datetime
    event: Event
    decision: Decision
    before: Counters
    after: Counters
    effects: tuple[str, ...] = ()
    done_at: datetime | None = None

    @property
    def is_pending(self) -> bool:
        return bool(self.effects) and self.done_at is None


def counters(state: State | None, replica_key: str | None) -> Counters:
    """`replica_key` names the replica an event is about; its counters are zero where it is not loaded."""
    if state is None:
        return Counters()
    budgets = state.job.budgets
    replica = next((each for each in state.replicas if each.key == replica_key), None)
    return Counters(
        attempt=state.job.attempt,
        reruns_used=budgets.reruns_used,
        internal_used=budgets.internal_used,
        restarts_used=replica.restarts_used if replica else 0,
        replaced=replica.replaced if replica else 0,
        collateral=replica.collateral if replica else 0,
    )


def fold(entries: Iterable[LedgerEntry]) -> State | None:
    """The state that these entries, in the order of their commits, lead to; None for no entry."""
    state: State | None = None
    for entry in entries:
        change = evolve(state, entry.decision, entry.at)
        if isinstance(entry.decision, AcceptJob):
            state = State(entry.decision.job, change.replicas, whole=True)
        elif state is not None:
            state = apply(state, change)
    return state
