"""Who has exited 0 and is needed again, because the primary begins another incarnation.

    primary   ──incarnation 1──────────────✗ fails        ──incarnation 2──► waits for its peers
    worker    ──incarnation 1──► exits 0, gives its VM back   called back ──incarnation 2──► sees that all is done, exits 0

The primary's new incarnation forms the cluster anew, and in a synchronous program waits for every member of it. Only the
primary calls: what another replica waits for is decided by whether the primary ends. An evaluator is no member of the
cluster: it reads checkpoints, and nobody waits for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from shared.core.model.job import Job, State
from shared.core.model.replica import Replica, ReplicaState

ALONGSIDE: Final = timedelta(seconds=180)
"""Who lived through the primary's loss and ran on beside its next incarnation for that long neither died of the loss, as
members of a broken cluster do within seconds, nor was about to end: it does not depend on the primary."""

TOLD_LATE: Final = timedelta(seconds=10)
"""After a rerun: an exit 0 beside a process of the attempt before, which was still ending, may be told after the
primary's next one is up."""


def replicas_to_reactivate(state: State) -> tuple[Replica, ...]:
    """`state` is the whole attempt. Once true of a replica, it stays so until the primary ends or the replica is back:
    it may be found late, and by several."""
    primary = state.find(state.job.attempt, state.job.plan.primary)
    if primary is None or state.job.state.is_terminal:
        return ()
    return tuple(each for each in state.replicas if must_reactivate(state.job, each, primary))


def must_reactivate(job: Job, replica: Replica, primary: Replica) -> bool:
    """It was done before the primary's present incarnation was up; or it may have outlived the one before, and was done
    before this one went on for a while: its exit and the primary's may be told in any order."""
    if job.plan.independent or replica.state is not ReplicaState.COMPLETED or replica.done_at is None:
        return False
    is_its_first = primary.incarnation == 1 and primary.attempt == 1
    if is_its_first or primary.ordered_at is None or not replica.replica_id.is_in_cluster:
        return False
    of_a_rerun = primary.incarnation == replica.incarnation == 1
    late = TOLD_LATE if of_a_rerun else timedelta()
    if replica.done_at < max(primary.ordered_at, primary.ready_at or primary.ordered_at) + late:
        return True  # if not before this incarnation was ordered, then beside a process of the last one that was still ending
    # Ordered, and not up: that it was up before the loss may be told long after it.
    has_outlived = bool(primary.lost_at and replica.ordered_at and replica.ordered_at < primary.lost_at)
    up_since = primary.ready_at if primary.state is ReplicaState.RUNNING else None
    return has_outlived and (up_since is None or replica.done_at < up_since + ALONGSIDE)
