"""The member of a round that is charged for a hang.

A round is one common run of the members of a synchronous job. When one of them has ended, all stop,
and one exit decides who is charged with the restart.

In a synchronous job, a member that hangs makes the others hang or fail, so the first end of a round
is often not that of the member at fault. There are two cases.

Agents found the hang (`find_stalled_member`). If exactly one member hung at a place where no other
one did, it is charged. Otherwise the member is unknown, and the first one in the order of the plan
is charged, always the same, so that its restarts limit the hangs of the job.

Peers show the hang (`find_hung_member`). A program that hangs reports no end. Its peers wait for
it, give up and fail, and the first of them would be charged for a failure that it only suffered. If
every member but one has failed, and every failure may be the loss of a peer, the member that is
left is the peer that the others lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainmaster.core.events import End, ReplicaExited
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import members
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules import evidence
from trainmaster.core.rules.stall_texts import stall_sources


def find_stalled_member(state: State, ends: Sequence[End]) -> Replica | None:
    """Return the member that is charged for a stall of the round; None if `state`, which may hold a
    part of the replicas, lacks it.
    """
    exits = [end for end in ends if isinstance(end, ReplicaExited)]
    sources = stall_sources(exits)
    places = Counter(map(_place, sources))
    elsewhere = [end for end in sources if places[_place(end)] == 1]
    order = state.job.plan.replica_ids
    charged = min(
        elsewhere if len(elsewhere) == 1 else sources,
        key=lambda end: order.index(end.subject.replica_id),
    )
    return state.find(state.job.attempt, charged.subject.replica_id)


def _place(end: ReplicaExited) -> str:
    """Return where the program hung; empty if that is unknown."""
    return (end.error.own_frame or end.error.frame) if end.error else ""


def find_hung_member(state: State, first: ReplicaExited, ends: Sequence[End]) -> Replica | None:
    """Return the member that hung in the round that ended; None if none is known to have.

    `first` is the end that decides about the round, and `ends` are all ends of the round.

    The member has reported that its program was stopped on the VM that it had in the round. If it
    had lost that VM before, something else may have happened to it.
    """
    member = find_member_without_failure(state, first, ends)
    if member is None or had_left(state.job, member):
        return None
    has_reported_from_its_vm = member.round_reported and _has_reported(state, member)
    # Any peer may be the one that `first` lost; at least one end says that a peer did not answer.
    peers_waited = evidence.reports_lost_peer(first) and any(
        evidence.reports_silent_peer(end) for end in ends
    )
    return member if has_reported_from_its_vm and peers_waited else None


def find_member_without_failure(
    state: State, first: ReplicaExited, ends: Sequence[End]
) -> Replica | None:
    """Return the only member of the round that reported no failure, if all failures may be losses
    of a peer; else None.
    """
    without_failure = _members_without_failure(state, first, ends)
    return without_failure[0] if len(without_failure) == 1 else None


def members_that_left(state: State, first: ReplicaExited, ends: Sequence[End]) -> Sequence[Replica]:
    """Return the members of the round that had exited 0 before it ended, or whose ranks had, if all
    failures may be losses of a peer.
    """
    return [
        member
        for member in _members_without_failure(state, first, ends)
        if had_completed(state.job, member) or had_left(state.job, member)
    ]


def were_left(state: State, first: ReplicaExited, ends: Sequence[End]) -> bool:
    """Whether the members that failed had lost only peers that had exited 0, or whose ranks had.

    A further member may have waited for these peers as well, until it was stopped. If it has
    reported its stop, it ran when the others failed, so that it is no lost peer, unless it hung.
    """
    left = members_that_left(state, first, ends)
    others = [
        member for member in _members_without_failure(state, first, ends) if member not in left
    ]
    may_hang = bool(others) and any(map(evidence.reports_silent_peer, ends or (first,)))
    were_stopped = all(member.round_reported and _has_reported(state, member) for member in others)
    return bool(left) and were_stopped and not may_hang


def had_completed(job: Job, member: Replica) -> bool:
    """Whether the member completed before the round ended.

    When a round ends, the next incarnation of the completed members is ordered at once, at the time
    that the round stores. All others report first, and it is ordered then.
    """
    return member.ordered_at is not None and member.ordered_at == job.round.ordered_at


def had_left(job: Job, member: Replica) -> bool:
    """Whether the member has reported that its ranks had exited 0 when the round ended."""
    return member.left_peers and member.incarnation == job.round.number


def _members_without_failure(
    state: State, first: ReplicaExited, ends: Sequence[End]
) -> Sequence[Replica]:
    """Return the members of the round that reported no failure; none if a failure cannot be the
    loss of a peer.
    """
    if not all(evidence.hints_at_lost_peer(end) for end in ends or (first,)):
        return ()
    return [
        member
        for member in members(state)
        if member.replica_id not in state.job.round.without and not _has_failed(state, member, ends)
    ]


def _has_failed(state: State, member: Replica, ends: Sequence[End]) -> bool:
    """Whether the member's end was read, or the member reported with its readiness that it ended by
    itself: not all ends of a large round are read.
    """
    if member.replica_id in map(evidence.replica_of, ends):
        return True
    return member.has_ended and _has_reported(state, member)


def _has_reported(state: State, member: Replica) -> bool:
    """Whether the member has reported since the round ended, perhaps from a VM that it has lost."""
    return member.incarnation == state.job.round.number
