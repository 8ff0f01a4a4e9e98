"""The history of a job: each ledger entry with the documents that it changed.

The last step holds the state that `core.ledger.fold` gives. A step on one replica costs the same
whatever the number of replicas, so that a page about a job with 1,000 replicas stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainmaster.core.actions import (
    AcceptJob,
    BeginRound,
    ContinueProvisioning,
    FailJob,
    ReplicaAction,
    StopRound,
    SucceedJob,
)
from trainmaster.core.decisions import Decision
from trainmaster.core.evolve import changes_whole_attempt, evolve
from trainmaster.core.ledger import LedgerEntry, judged
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import Replica


@dataclass(frozen=True, slots=True)
class Step:
    """One ledger entry, and what it changed."""

    entry: LedgerEntry
    previous: Job | None
    """The job before the entry; None: the entry accepted it."""
    job: Job
    """The job after the entry."""
    changed: tuple[Replica, ...]
    """The replicas of the current attempt that the entry created or changed.

    All, if a round began or ended, or the floor rose.
    """

    @property
    def begins_attempt(self) -> bool:
        return self.previous is None or self.previous.attempt != self.job.attempt


@dataclass(frozen=True, eq=False)
class History:
    """All steps of a job, and the state that they lead to.

    Equal only to itself: what follows from it can be cached.
    """

    steps: tuple[Step, ...]
    state: State


def read_history(entries: Iterable[LedgerEntry]) -> History | None:
    """Return the history that these entries tell, in the order of their commits; None if none
    accepts a job.
    """
    replicas: dict[str, Replica] = {}
    steps = tuple(_steps(entries, replicas))
    if not steps:
        return None
    return History(steps, recall(State(steps[-1].job, tuple(replicas.values()), whole=True)))


def _steps(entries: Iterable[LedgerEntry], replicas: dict[str, Replica]) -> Iterator[Step]:
    """Yield the steps.

    `replicas` holds the stored replicas of the current attempt by their keys, after each step.
    """
    job: Job | None = None
    for entry in entries:
        action = entry.decision.action
        if isinstance(action, AcceptJob):
            previous = None
            job = action.job
            state = None
        elif job is None:
            continue
        else:
            previous = job
            state = judged(_state_for(entry.decision, job, replicas), entry)
        change = evolve(state, entry.decision, entry.at)
        job = change.job or job
        if previous is None or previous.attempt != job.attempt:
            replicas.clear()
        changed = tuple(replica for replica in change.replicas if replica.attempt == job.attempt)
        replicas.update({replica.key: replica for replica in changed})
        if previous is not None:
            has_new_round = previous.round != job.round
            has_moved = previous.placement.floor != job.placement.floor
            if has_new_round or has_moved:
                changed = tuple(replicas.values())
        yield Step(entry, previous, job, recall(State(job, changed)).replicas)


def _state_for(decision: Decision, job: Job, replicas: Mapping[str, Replica]) -> State:
    """Return the job with the replicas that the action changes."""
    action = decision.action
    if changes_whole_attempt(job, decision):
        return State(job, tuple(replicas.values()), whole=True)
    key = None
    if isinstance(action, ReplicaAction | SucceedJob | FailJob | StopRound | BeginRound):
        key = action.replica
    elif isinstance(action, ContinueProvisioning):
        key = action.replacement.replica if action.replacement else None
    return State(job, (replicas[key],) if key is not None and key in replicas else ())
