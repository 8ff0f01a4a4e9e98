"""Evidence: what the end of a replica shows about its cause, and which end of a round decides about
the round.

The members of a synchronous job train in rounds: they start together, and when one of them fails or
loses its VM, the others soon fail, too, because they have lost a peer. The round has then ended,
and the next one is held, which means that its members wait until all of them are ready. During that
time the ends of the old round arrive in any order, and each is stored with a rank:

    rank 0   the machine: its VM was unfit, lost, shut down or rebooted, or its agent silent; or all
             were asked to save
    rank 1   its own failure: a traceback, out of memory, or a signal other than SIGABRT
    rank 2   any other failure: no traceback, an abort, a stall; also a set-up that fails, which
             decides only if all others report a lost peer
    rank 3   a reported loss of a peer: the cause is probably elsewhere

When all members are ready, the end with the smallest (rank, time) decides whose failure it was, and
what it costs (`verdict`). Members that the control plane itself stopped have no end.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Final, NamedTuple

from trainmaster.core.events import (
    End,
    Event,
    ExitCause,
    MemberMissing,
    ReplicaExited,
    SaveOver,
    VmLost,
    VmReady,
)
from trainmaster.core.model.exit_policy import SIGNAL_BASE, code_of
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import has_kept_vm, is_member, is_ready
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.program_errors.meaning import Meaning, is_peer_loss, meaning_of

ENDS_READ: Final = 20
"""Ends of a round that a verdict reads.

If the first one reports a lost peer, so do those that it does not read.
"""
SIGABRT: Final = 6
"""A runtime that gives up on its peers aborts itself, so this signal alone does not show whose
fault the exit was.
"""
SIGNAL_MAX: Final = 64
"""Number of the last signal of Linux."""
_GIVES_UP_VM: Final = (ExitCause.UNFIT, ExitCause.SETUP)
"""Exits with which the replica gets another VM before any program ran in that incarnation."""
_OF_MACHINE: Final = (
    ExitCause.UNFIT,
    ExitCause.VM_STOPPING,
    ExitCause.VM_RESTARTED,
    ExitCause.SAVED,
)


class Rank(IntEnum):
    """The kind of cause that an end shows. The ranks are stored."""

    MACHINE = 0
    OWN = 1
    OTHER = 2
    PEER = 3


class RoundEnd(NamedTuple):
    """One end of a member, as its ledger entry stores it for the verdict."""

    round: str
    """The `round_key`, or the `hold_key`, that the end counts for."""
    rank: Rank
    ended_at: datetime


def reports_lost_peer(event: ReplicaExited) -> bool:
    """Whether the program's own error says that it lost a peer."""
    meaning = _meaning(event)
    return meaning is not None and is_peer_loss(meaning)


def hints_at_lost_peer(end: End) -> bool:
    """Whether the end hints at a lost peer: its error says so, or it is an abort, with which a
    runtime gives up on its peers.
    """
    if not isinstance(end, ReplicaExited):
        return False
    is_abort = code_of(end.exit_status, end.signal) == SIGNAL_BASE + SIGABRT or names_abort(end)
    return is_abort or reports_lost_peer(end)


def reports_silent_peer(end: End) -> bool:
    """Whether the end is an exit whose error says that a peer did not answer."""
    return isinstance(end, ReplicaExited) and _meaning(end) is Meaning.SILENT_PEER


def _meaning(event: ReplicaExited) -> Meaning | None:
    """Return what the error of a member means, by its own type and message; None: it has none."""
    if event.error is None:
        return None
    return meaning_of(event.error.type, event.error.message)


def names_abort(event: ReplicaExited) -> bool:
    """Whether the error is that of a runtime that aborted itself, or of a launcher whose process
    was aborted.
    """
    return event.error is not None and (
        event.error.type == "Aborted" or "SIGABRT" in event.error.message
    )


def is_own_failure(event: ReplicaExited) -> bool:
    """Whether the exit alone shows that the replica's own program failed.

    A stall does not: the agent ended it.
    """
    if event.cause is ExitCause.STALLED:
        return False
    if event.out_of_memory or event.cause is ExitCause.INSTALL:
        return True
    if event.error is not None:
        return not (reports_lost_peer(event) or names_abort(event))
    signal = (code_of(event.exit_status, event.signal) or 0) - SIGNAL_BASE
    is_signal = 0 < signal <= SIGNAL_MAX
    return is_signal and signal != SIGABRT


def rank_of(end: End) -> Rank:
    """Return the rank of an end that is not an exit 0."""
    if not isinstance(end, ReplicaExited) or end.cause in _OF_MACHINE:
        return Rank.MACHINE
    if reports_lost_peer(end):
        return Rank.PEER
    is_own = end.cause is not ExitCause.SETUP and is_own_failure(end)
    return Rank.OWN if is_own else Rank.OTHER


def end_in(event: Event, round_: str | None = None) -> End | None:
    """Return the end that the event reports; None: it reports none, or an exit 0.

    An event may contain the end of an earlier program on the same VM. A vm-ready does: that end is
    returned. So does the exit of an incarnation that could not be started. Of its two ends, the
    earlier one is returned if it belongs to `round_`, unless a fault of the machine explains both.
    """
    end = event.ended if isinstance(event, VmReady) else event
    if isinstance(end, ReplicaExited) and end.cause is not ExitCause.UNFIT and end.ended:
        is_asked_for = round_ == round_key(end.ended.subject.attempt, end.ended.subject.incarnation)
        if is_asked_for:
            end = end.ended
    if isinstance(end, ReplicaExited):
        return None if end.succeeded else end
    return end if isinstance(end, VmLost | MemberMissing | SaveOver) else None


def round_end(state: State, event: Event) -> RoundEnd | None:
    """Return what the ledger entry of the event stores for a verdict; None: the event reports no
    end that counts.

    While a round is held, ends count for the round before it: the loss of a VM that was in it, and
    the end of a program of it. A VM that is given up because it is unfit or cannot be set up is
    lost, too, unless it reports how the round ended on it; a fault of the machine explains that
    end. The loss of a VM that is ready for the held round shows nothing about the round before it,
    and counts for the hold (`hold_key`).

    `state` is the state before the decision. A time before the start of the round, from a VM with a
    wrong clock, counts as that start.
    """
    job = state.job
    end = _end_of_round_before(state, event) or end_in(event)
    if end is None or not is_member(job.plan, replica_of(end)):
        return None
    is_left_out = replica_of(end) in job.round.without
    number = job.round.number
    is_vm_lost = isinstance(end, VmLost) or _is_of_hold(job, end)
    if job.round.is_held:
        if is_vm_lost and (is_left_out or not _was_in_round_before(state, replica_of(end))):
            return RoundEnd(hold_key(job.attempt, number), Rank.MACHINE, end.at)
        number -= 1  # the round that ended
    is_first = number == 0  # of the attempt: no round has ended, or its verdict was given
    if is_first or is_left_out:
        return None
    is_exit = isinstance(end, ReplicaExited) and not is_vm_lost
    if is_exit and (job.attempt, number) != _round_of(end):
        return None
    at = max(end.at, job.round.began_at) if job.round.began_at else end.at
    return RoundEnd(round_key(job.attempt, number), rank_of(end), at)


def _end_of_round_before(state: State, event: Event) -> End | None:
    """Return how the round before the held one ended on a VM that cannot be set up for the held
    one; None: it has reported that before, or does not report it.
    """
    job = state.job
    if not isinstance(event, ReplicaExited) or not job.round.is_held:
        return None
    end = end_in(event, round_key(job.attempt, job.round.number - 1))
    is_of_earlier_program = end is not event
    return (
        end
        if is_of_earlier_program and _was_in_round_before(state, event.subject.replica_id)
        else None
    )


def _is_of_hold(job: Job, end: End) -> bool:
    """Whether the end gives up the VM of a member that was about to be ready for the held round."""
    if not isinstance(end, ReplicaExited) or end.cause not in _GIVES_UP_VM:
        return False
    return job.round.is_held and _round_of(end) == (job.attempt, job.round.number)


def _round_of(end: End) -> tuple[int, int] | None:
    """Return attempt and round of the program that exited; None: the end is no exit."""
    if not isinstance(end, ReplicaExited):
        return None
    return end.subject.attempt, end.subject.incarnation


def _was_in_round_before(state: State, replica_id: ReplicaId) -> bool:
    """Whether the replica's VM was in the round before the held one, and has not reported how that
    round ended on it.
    """
    job = state.job
    replica = state.find(state.job.attempt, replica_id)
    return replica is not None and has_kept_vm(job, replica) and not is_ready(job, replica)


def replica_of(end: End) -> ReplicaId:
    return end.replica_id if isinstance(end, MemberMissing | SaveOver) else end.subject.replica_id


def round_key(attempt: int, number: int) -> str:
    """Return the name of a round within its job."""
    return f"{attempt}-{number}"


def hold_key(attempt: int, number: int) -> str:
    """Return the name of the time in which this round was held.

    A loss in that time says nothing about a round that ended. It counts only if it was stored after
    the round had begun, which can happen because commits of losses do not compare the job's
    version.
    """
    return f"{round_key(attempt, number)}-held"
