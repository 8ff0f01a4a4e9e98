"""Attribution: whose fault an exit was (rule 7).

One relation answers every question: does this loss of a peer explain this exit? It is asked when the exit is judged,
and again after the commit of every loss, for the exits that were charged before (`core.rules.explained_charge`).
`trainmaster.core.rules.causes` finds the loss among those of all peers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import FailJob, RerunJob, RestartReplica
from trainmaster.core.decisions import Decision
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import SIGNAL_BASE, Blame, code_of
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import EndKind, PastIncarnation, Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.timeouts import EARLY_NOTICE_MAX, LOSS_REPORT_DELAY_MAX

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
"""Errors with which a framework reports a lost peer: TensorFlow's collectives and coordination service, torch's process
groups and launcher, plain sockets. Measured: UnavailableError, AbortedError, RendezvousConnectionError."""
PEER_LOSS_WORDS: Final = ("connection closed", "connection reset", "connection refused", "socket closed", "broken pipe")
"""Words in the message of an error that reports a lost peer, whatever its type: gloo raises a RuntimeError with
them."""

_END_KINDS: Final = {ExitCause.VM_RESTARTED: EndKind.REBOOT, ExitCause.STALLED: EndKind.STALL}
"""Causes of ends that are not exits of the program itself."""

MEMBERS_WITH_PEERS: Final = 2
"""Size of the smallest cluster in which a replica has a peer."""

SIGABRT: Final = 6
"""A runtime that gives up on its peers aborts itself, so this signal alone does not show whose fault the exit was."""


def blame(event: ReplicaExited) -> Blame:
    """Return what the evidence of an exit points to. A stall is no evidence, because the agent ended the program."""
    if event.cause is ExitCause.STALLED:
        return Blame.UNKNOWN
    if event.error is not None:
        message = event.error.message.lower()
        is_peer_loss = event.error.type.rpartition(".")[2] in PEER_LOSS_TYPES or any(
            words in message for words in PEER_LOSS_WORDS
        )
        return Blame.PEER if is_peer_loss else Blame.OWN
    return Blame.OWN if event.signal not in (None, SIGABRT) else Blame.UNKNOWN


def may_be_collateral(job: Job, event: ReplicaExited) -> bool:
    """Whether the evidence of an exit points to a lost peer, or leaves the cause open. The loss may become known later.

    An abort without a traceback counts: a runtime that gives up on its peers aborts itself.
    """
    members = sum(group.count for group in job.plan.groups if ReplicaId(group.task_type, 0).is_in_cluster)
    if job.plan.independent or members < MEMBERS_WITH_PEERS or not event.subject.replica_id.is_in_cluster:
        return False
    is_abort = event.error is None and code_of(event.exit_status, event.signal) == SIGNAL_BASE + SIGABRT
    return blame(event) is Blame.PEER or is_abort


def past_exit(replica: Replica, event: ReplicaExited, *, is_charged: bool) -> PastIncarnation:
    """Return the incarnation that this exit ended."""
    return PastIncarnation(
        replica.incarnation,
        _END_KINDS.get(event.cause, EndKind.EXIT),
        ended_at=event.at,
        started_at=start_of(replica, event),
        is_charged=is_charged,
        exit_status=event.exit_status,
        signal=event.signal,
        signature=event.signature,
        blame=blame(event),
    )


def start_of(replica: Replica, event: ReplicaExited) -> datetime | None:
    """Return when the program that exited started; if that is not known, when it was ordered."""
    started_at = event.at - timedelta(seconds=event.ran_s) if event.ran_s is not None else None
    return replica.started_at or started_at or replica.ordered_at


def may_be_explained(decision: Decision) -> bool:
    """Whether the loss of a peer that has not been read yet may change the decision about an exit."""
    return decision.is_postponed or isinstance(decision.action, RestartReplica | RerunJob | FailJob)


def past_vm(replica: Replica, at: datetime) -> PastIncarnation:
    """Return the incarnation that ended with its VM, whose loss was reported at `at`.

    If the start of the incarnation was not reported, it stays unknown on a VM that has reported before: the VM may have
    been lost while it still ran the previous incarnation. On a new VM, the time of the order counts as the start.
    """
    ordered_at = None if replica.instance_id else replica.ordered_at
    return PastIncarnation(replica.incarnation, EndKind.VM_LOST, at, replica.started_at or ordered_at)


def explains(peer: Replica, loss: PastIncarnation, replica: Replica, ended: PastIncarnation) -> bool:
    """Whether this loss of a peer explains this exit of the replica.

    It does if the replica's program ran while the peer was away, from the loss until the peer's next incarnation
    started. Only the times of the events count, so the order in which they are judged does not matter.

        peer      ───────✗ ended_at ── away ── started_at ───────
        replica   ──────────────✗ explained

    Free restarts are bounded by charged restarts and real losses: an exit that a loss explains is not a loss itself.
    """
    if loss.back_at and ended.started_at and loss.back_at < ended.started_at:
        return False
    if loss.kind is EndKind.EXIT:
        return _exit_explains(peer, loss, replica, ended)
    if loss.kind is ended.kind is EndKind.STALL:  # a gang stalls together: only the earlier explains the later
        return (loss.ended_at, peer.key) < (ended.ended_at, replica.key)
    return _vm_loss_explains(loss, ended)


def _exit_explains(peer: Replica, loss: PastIncarnation, replica: Replica, ended: PastIncarnation) -> bool:
    """Whether this failure of a peer explains this exit.

    Between two exits, only the earlier one explains the later one, so one of them stays charged. One exception: a
    failing program may close its connections before it ends, and its peers report that. An exit with evidence of its
    own fault is not explained by a peer that failed with the same error, because that is one bug in both; nor by a peer
    that reported a lost peer, because that may have been this replica.
    """
    if not loss.is_charged or is_ruled_out(loss, ended):
        return False
    if (loss.ended_at, peer.key) < (ended.ended_at, replica.key):
        return True
    is_noticed_early = loss.blame is Blame.OWN and ended.blame is Blame.PEER
    return is_noticed_early and loss.ended_at - ended.ended_at <= EARLY_NOTICE_MAX


def is_ruled_out(loss: PastIncarnation, ended: PastIncarnation) -> bool:
    """Whether the evidence of both exits alone shows that this failure of a peer does not explain this exit."""
    is_one_bug = loss.signature is not None and loss.signature == ended.signature
    return ended.blame is Blame.OWN and (loss.blame is Blame.PEER or is_one_bug)


def _vm_loss_explains(loss: PastIncarnation, ended: PastIncarnation) -> bool:
    """Whether this loss of a peer's VM explains this exit. The loss may have been reported late.

    An exit with evidence of its own fault is explained only if it came after the report.
    """
    if ended.ended_at >= loss.ended_at:
        return True
    if ended.blame is Blame.OWN or (loss.started_at and ended.ended_at < loss.started_at):
        return False
    return ended.ended_at >= loss.ended_at - LOSS_REPORT_DELAY_MAX


def explains_rerun(job: Job, lost: Replica, lost_at: datetime) -> bool:
    """Whether the last charged rerun was caused by the loss of `lost`, which was reported at `lost_at`.

    Its VM had reported before the rerun, and has not reported since. Only the times of the events count: both may be
    judged much later, and in either order.
    """
    last = job.last_rerun
    if last is None or last.blame is Blame.OWN or job.plan.independent or not lost.replica_id.is_in_cluster:
        return False
    is_silent_since = lost.instance_id is not None and not lost.ever_ready
    return is_silent_since and lost_at - last.at <= LOSS_REPORT_DELAY_MAX
