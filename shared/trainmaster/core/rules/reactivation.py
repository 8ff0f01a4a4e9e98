"""Reactivation (rule 3): which completed replicas must run again because the primary restarted.

    primary   incarnation 1 ──────────✗ fails     incarnation 2 ──► waits for its peers
    worker    incarnation 1 ──► exits 0           reactivated: incarnation 2 ──► finds nothing to do, exits 0

A restarted primary of a synchronous program rebuilds the cluster and waits for every member, including those that had
already exited 0. Only a primary's restart reactivates others, because only the primary's exit ends the job. Evaluators
are not cluster members and are never reactivated.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainmaster.core.actions import ReactivateReplica
from trainmaster.core.decisions import Decision, Reason, Rule, not_yet
from trainmaster.core.events import CompletionOutdated
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.timeouts import EXIT_REPORT_DELAY_MAX, INDEPENDENCE_PROOF


def replicas_to_reactivate(state: State) -> tuple[Replica, ...]:
    """Return the completed replicas that the primary's current incarnation needs. `state` holds the whole attempt.

    The answer is monotonic: once a replica is returned, it stays returned until it is running again or the primary
    exits. It is therefore safe to act on it late, or twice.
    """
    primary = state.find(state.job.attempt, state.job.plan.primary)
    if primary is None or state.job.state.is_terminal:
        return ()
    return tuple(replica for replica in state.replicas if must_reactivate(state.job, replica, primary))


def must_reactivate(job: Job, replica: Replica, primary: Replica) -> bool:
    """Whether the primary's current incarnation may wait for this replica, which completed before it.

    True if the replica completed before the primary's current incarnation became ready; or if it survived the primary's
    failure and completed within `INDEPENDENCE_PROOF` of the restart. The exit events may arrive in either order.
    """
    if job.plan.independent or replica.state is not ReplicaState.COMPLETED or replica.done_at is None:
        return False
    is_first_start = primary.incarnation == 1 and primary.attempt == 1
    if is_first_start or primary.ordered_at is None or not replica.replica_id.is_in_cluster:
        return False
    return _completed_before(replica.done_at, primary.ordered_at, replica, primary) or _survived_the_failure(
        replica.done_at, replica, primary
    )


def _completed_before(done_at: datetime, ordered_at: datetime, replica: Replica, primary: Replica) -> bool:
    """Whether the replica completed before the primary became ready.

    If the primary had been ordered before that, the replica completed alongside a process of the primary's previous
    incarnation that was still ending.
    """
    is_after_rerun = primary.incarnation == replica.incarnation == 1
    delay = EXIT_REPORT_DELAY_MAX if is_after_rerun else timedelta()
    return done_at < max(ordered_at, primary.started_at or ordered_at) + delay


def _survived_the_failure(done_at: datetime, replica: Replica, primary: Replica) -> bool:
    """Whether the replica ran when the primary's previous incarnation ended and completed soon after the restart.

    For an end with a cause of its own, `ordered_at` counts, not `ready_at`: the report that the replica was ready may
    arrive long after the failure. An end that a peer caused is not stored in `lost_at`. Then the start of the
    replica's program counts, because peers that are held are ordered at different times and start together.
    """
    has_survived_own = primary.lost_at and replica.ordered_at and replica.ordered_at < primary.lost_at
    has_survived_any = replica.started_at and primary.ordered_at and replica.started_at < primary.ordered_at
    if not (has_survived_own or has_survived_any):
        return False
    restarted_at = primary.started_at
    return restarted_at is None or done_at < restarted_at + INDEPENDENCE_PROOF


def judge_outdated_completion(state: State, replica: Replica, event: CompletionOutdated, now: datetime) -> Decision:
    """Decide whether a completed replica runs again. `state` holds the replica and the primary."""
    primary = state.find(replica.attempt, state.job.plan.primary)
    if primary is None or not must_reactivate(state.job, replica, primary):
        return not_yet("The primary does not wait for this replica.")
    text = (
        f"{primary.replica_id.words} starts incarnation {primary.incarnation} and may wait for "
        f"{replica.replica_id.words}, which had exited 0: it is reactivated on another VM with the same hostname, "
        "free of charge."
    )
    return Decision(Rule.REPLICA_DONE, Reason.PRIMARY_RESTARTED, text, ReactivateReplica(replica.key))
