"""Whose fault an exit was: a peer's loss explains it, or a loss known only now explains one that was charged before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from shared.core.events import ReplicaExited
from shared.core.model.exit_policy import Blame
from shared.core.model.job import Job, State
from shared.core.model.replica import Replica, ReplicaState

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
"""Errors in which a framework tells that a peer is gone: TensorFlow's collectives and coordination service, torch's
process groups and launcher, plain sockets. Measured: UnavailableError, AbortedError, RendezvousConnectionError; gloo's
RuntimeError says it in words."""

SIGABRT: Final = 6
"""A runtime that gives up on its peers aborts itself: the signal alone tells of nobody."""

GIVE_BACK_S: Final = 180
"""How long before a loss became known an exit may have been its consequence: peers die within seconds of it, and what
no event reports is found by the sweep of the next minute."""


def blame(event: ReplicaExited) -> Blame:
    if event.error is not None:
        words = event.error.message.lower()
        tells_of_peer = event.error.type.rpartition(".")[2] in PEER_LOSS_TYPES or any(
            known in words for known in PEER_LOSS_WORDS
        )
        return Blame.PEER if tells_of_peer else Blame.OWN
    return Blame.OWN if event.signal not in (None, SIGABRT) else Blame.UNKNOWN


def lost_peer(state: State, replica: Replica, event: ReplicaExited) -> Replica | None:
    """A peer whose own loss explains this exit: it is down now, or was lost during this replica's present incarnation.

    A loss explains at most one exit of each peer (what was forgiven after it is settled, and a held replica runs
    nothing), so free restarts stay bounded by charged ones and real losses. A peer that is only HELD has no loss of
    its own. A peer that died of the very same error explains nothing, that is one bug in both; nor does one that died
    telling of a lost peer, when this exit is the one it told of. Nothing is explained where replicas are independent.
    """
    if state.job.plan.independent:
        return None
    mine = blame(event)
    settled = max((at for at in (replica.ready_at, replica.forgiven_at) if at), default=None)
    for peer in _peers(state, replica):
        if peer.lost_at is None:
            continue
        last = peer.last_exit
        if mine is Blame.OWN and last and (last.blame is Blame.PEER or last.signature == (event.signature or "")):
            continue
        if peer.state.is_down or settled is None or peer.lost_at > settled:
            return peer
    return None


def explained_charges(state: State, lost: Replica, now: datetime) -> tuple[Replica, ...]:
    """Peers whose last charge the loss of this replica, known only now, explains: they died while it lived, shortly
    before, and of nothing that was their own. One that was called back and is not up again yet did not live."""
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
        and now - peer.charged_at <= timedelta(seconds=GIVE_BACK_S)
    )


def told(refunds: Sequence[Replica]) -> str:
    """The end of a decision's text."""
    if not refunds:
        return ""
    names = " and ".join(peer.replica_id.words for peer in refunds)
    return f" It explains why {names} exited before: that restart is given back."


def explains_rerun(job: Job, lost: Replica, now: datetime) -> bool:
    """Whether the job was rerun for the exit of a peer of this replica, whose loss is known only now: its VM, from
    which it had spoken before the rerun, never spoke since."""
    last = job.last_rerun
    if last is None or last.blame is Blame.OWN or job.plan.independent or not lost.replica_id.is_in_cluster:
        return False
    is_silent_since = lost.instance_id is not None and not lost.ever_ready
    return is_silent_since and now - last.at <= timedelta(seconds=GIVE_BACK_S)


def _peers(state: State, replica: Replica) -> tuple[Replica, ...]:
    """The other members of its cluster."""
    if not replica.replica_id.is_in_cluster:
        return ()
    others = (
        peer for peer in state.replicas if peer.replica_id != replica.replica_id and peer.attempt == replica.attempt
    )
    return tuple(peer for peer in others if peer.replica_id.is_in_cluster)
