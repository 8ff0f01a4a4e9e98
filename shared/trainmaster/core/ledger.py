"""The ledger: one entry per event of a job.

Creating the entry is the duplicate check. Folding all entries of a job, in the order of their
commits, rebuilds its stored state.

Some changes are written to the job's document alone, whatever the number of its replicas: the end
of a round, the common run of the members of a synchronous job, and a move to another zone, which
raises the floor, the lowest VM generation that counts. `recall` shows the replicas as they are
after such changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from trainmaster.core.actions import AcceptJob, Ignore, ReplicaAction
from trainmaster.core.decisions import Decision
from trainmaster.core.events import End, Event, ReplicaExited, VmLost, VmReady
from trainmaster.core.evolve import evolve, store
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import recall
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules.evidence import Rank, end_in, rank_of, replica_of, reports_lost_peer
from trainmaster.core.timeouts import EXCUSE_MAX
from trainmaster.core.transitions.change import Effect


@dataclass(frozen=True, slots=True)
class Counters:
    """Use of the budgets when an event was judged: those of the job, and of the replica that the
    event is about.
    """

    attempt: int = 0
    reruns_used: int = 0
    """Charged reruns of the job."""
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
    job_state: JobState | None
    """State of the job after the decision; None: the job is unknown, and the entry is not stored.
    """
    effects: tuple[Effect, ...] = ()
    """Messages to publish after the commit."""
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
        """Whether a request to provision or to tune has not been confirmed.

        Notifications have their own state.
        """
        return any(effect is not Effect.NOTIFY for effect in self.effects) and self.done_at is None

    @property
    def is_notification_pending(self) -> bool:
        return Effect.NOTIFY in self.effects and self.notified_at is None


def ends_of(entries: Iterable[LedgerEntry]) -> tuple[End, ...]:
    """Return the ends of members that these entries report."""
    ends = (end_in(entry.event, entry.round) for entry in entries)
    return tuple(end for end in ends if end is not None)


def excused_restarts(replica: Replica, entries: Iterable[LedgerEntry]) -> tuple[datetime, ...]:
    """Return the charged restarts that do not count, of a replica that is judged alone: its program
    reported a lost peer when a VM of the cluster was lost.

    `entries`: of its job, from `EXCUSE_MAX` before its first restart.
    """
    known = list(entries)
    lost_at = map(_machine_loss, known)
    losses = [at for at in lost_at if at is not None]
    return tuple(
        entry.at
        for entry in known
        if entry.at in replica.restarts
        and isinstance(entry.event, ReplicaExited)
        and entry.event.subject.replica_id == replica.replica_id
        and reports_lost_peer(entry.event)
        and any(abs(entry.event.at - at) <= EXCUSE_MAX for at in losses)
    )


def _machine_loss(entry: LedgerEntry) -> datetime | None:
    """Return when a machine of the cluster was lost; None: the entry reports no such loss."""
    end = end_in(entry.event)
    if (
        end is None
        or isinstance(entry.decision.action, Ignore)
        or not replica_of(end).is_in_cluster
    ):
        return None
    return end.at if rank_of(end) is Rank.MACHINE else None


def counters(state: State | None, replica_key: str | None) -> Counters:
    """Return the current use of the budgets. A replica that was not loaded counts as zero."""
    if state is None:
        return Counters()
    budgets = state.job.budgets
    replica = next((replica for replica in state.replicas if replica.key == replica_key), None)
    return Counters(
        attempt=state.job.attempt,
        reruns_used=budgets.reruns_used,
        restarts_used=replica.restarts_used if replica else 0,
        replaced=replica.replaced if replica else 0,
    )


def replay(stored: State | None, entry: LedgerEntry) -> State | None:
    """Return the state that is stored after one entry.

    None stays None until the entry that accepts the job.

    `recall` turns the stored state into the one that rules see.
    """
    if isinstance(entry.decision.action, AcceptJob):
        job = entry.decision.action.job
        return State(
            job, evolve(state=None, decision=entry.decision, now=entry.at).replicas, whole=True
        )
    if stored is None:
        return None
    return store(stored, evolve(judged(stored, entry), entry.decision, entry.at))


def judged(stored: State, entry: LedgerEntry) -> State:
    """Return the state that the entry was judged on.

    A move to another zone and the end of a round write only the job, and other events of a replica
    only that replica, so neither disturbs the commit of the other. An event that changed its
    replica was judged while the replica had the event's VM: before a move or a round recalled it
    to a later one.
    """
    event = entry.event
    if not isinstance(event, VmReady | ReplicaExited | VmLost) or not isinstance(
        entry.decision.action, ReplicaAction
    ):
        return recall(stored)
    vm_generation = event.subject.vm_generation
    replica = stored.find(event.subject.attempt, event.subject.replica_id)
    if replica is not None and replica.vm_generation == vm_generation:
        return stored
    placement = stored.job.placement
    placement = replace(placement, floor=min(placement.floor, vm_generation))
    return recall(replace(stored, job=replace(stored.job, placement=placement)))


def fold(entries: Iterable[LedgerEntry]) -> State | None:
    """Return the state that these entries lead to, in the order of their commits; None if there are
    none.
    """
    stored: State | None = None
    for entry in entries:
        stored = replay(stored, entry)
    return None if stored is None else recall(stored)
