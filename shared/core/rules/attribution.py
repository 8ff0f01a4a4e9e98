"""Attribution: whose fault an exit was.

Two questions are answered here. Does the loss of a peer explain this exit (rule 7)? Does a loss that becomes known only
now explain exits that were charged before (refunds)?
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from shared.core.events import ReplicaExited
from shared.core.model.exit_policy import Blame
from shared.core.model.job import Job, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.timeouts import REFUND_WINDOW

PEER_LOSS_TYPES: Final = (
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
    "DistBackendError",
    "DistNetworkError",
    "RendezvousConnectionError",
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
)
PEER_LOSS_WORDS: Final = ("connection closed", "connection reset", "connection refused", "socket closed", "broken pipe")
"""Errors with which a framework reports that a peer is gone: TensorFlow's collectives and coordination service, torch's
process groups and launcher, plain sockets. Measured: UnavailableError, AbortedError, RendezvousConnectionError; gloo's
RuntimeError has the words in its message."""

SIGABRT: Final = 6
"""A runtime that gives up on its peers aborts itself, so this signal alone points to no one."""


def blame(event: ReplicaExited) -> Blame:
    """Return what the evidence of an exit points to."""
    if event.error is not None:
        message = event.error.message.lower()
        is_peer_loss = event.error.type.rpartition(".")[2] in PEER_LOSS_TYPES or any(
            words in message for words in PEER_LOSS_WORDS
        )
        return Blame.PEER if is_peer_loss else Blame.OWN
    return Blame.OWN if event.signal not in (None, SIGABRT) else Blame.UNKNOWN


def lost_peer(state: State, replica: Replica, event: ReplicaExited) -> Replica | None:
    """Return a peer whose own loss explains this exit; None if there is none.

    The peer is down now, or was lost during the replica's present incarnation. `state` holds the replica and all peers
    that were ever lost.

    A loss explains at most one exit of each peer: what was forgiven after it is settled, and a held replica runs
    nothing. Free restarts are therefore bounded by charged restarts and real losses.

    These peers explain nothing: one that is only HELD, because it has no loss of its own; one that failed with the same
    error, because that is one bug in both; one that failed by reporting a lost peer, because that may have been this
    replica. Independent replicas do not explain each other's exits.
    """
    if state.job.plan.independent:
        return None
    own_blame = blame(event)
    settled_at = max((at for at in (replica.ready_at, replica.forgiven_at) if at), default=None)
    for peer in _peers(state, replica):
        if peer.lost_at is None:
            continue
        last = peer.last_exit
        if own_blame is Blame.OWN and last and (last.blame is Blame.PEER or last.signature == (event.signature or "")):
            continue
        if peer.state.is_down or settled_at is None or peer.lost_at > settled_at:
            return peer
    return None


def explained_charges(state: State, lost: Replica, now: datetime) -> tuple[Replica, ...]:
    """Return the peers whose last charged restart was caused by the loss of `lost`, which becomes known now.

    They failed within `REFUND_WINDOW`, while the lost replica was running, without evidence of their own fault. A
    reactivated replica that is not ready again was not running.
    """
    if state.job.plan.independent or lost.state is ReplicaState.WAITING:
        return ()
    return tuple(
        peer
        for peer in _peers(state, lost)
        if peer.charged_at is not None
        and peer.restarts_used > 0
        and peer.last_exit is not None
        and peer.last_exit.blame is not Blame.OWN
        and lost.ready_at is not None
        and lost.ready_at < peer.charged_at
        and now - peer.charged_at <= REFUND_WINDOW
    )


def refund_sentence(refunds: Sequence[Replica]) -> str:
    """Return the sentence that ends a decision's text, with a leading space; empty without refunds."""
    if not refunds:
        return ""
    names = " and ".join(peer.replica_id.words for peer in refunds)
    return f" This explains the earlier exit of {names}: that restart is refunded."


def explains_rerun(job: Job, lost: Replica, now: datetime) -> bool:
    """Whether the last charged rerun was caused by the loss of `lost`, which becomes known now.

    Its VM had reported before the rerun, and has not reported since.
    """
    last = job.last_rerun
    if last is None or last.blame is Blame.OWN or job.plan.independent or not lost.replica_id.is_in_cluster:
        return False
    is_silent_since = lost.instance_id is not None and not lost.ever_ready
    return is_silent_since and now - last.at <= REFUND_WINDOW


def _peers(state: State, replica: Replica) -> tuple[Replica, ...]:
    """Return the other members of the replica's cluster."""
    if not replica.replica_id.is_in_cluster:
        return ()
    return tuple(
        peer
        for peer in state.replicas
        if peer.replica_id != replica.replica_id and peer.attempt == replica.attempt and peer.replica_id.is_in_cluster
    )
