"""When VMs are requested again after a capacity error: at once in the next zone, and after the last
zone with growing pauses.

    first error ── one hour: a pass each minute
                ── then: after 1/30 of the time so far, at most a quarter of an hour

A pass requests VMs in each of the job's zones once; each request that fails is a capacity error. At
first, passes are frequent because free capacity goes to the next request. Capacity that has been
missing for hours usually stays missing, so they become rare. A search of a week has about 750
passes, with one ledger entry per zone.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import has_started
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.timeouts import FAST_RETRIES, RETRY_JITTER, RETRY_MAX, RETRY_MIN, RETRY_SHARE

_AWAITING_VM: Final = (ReplicaState.WAITING, ReplicaState.REPLACING)


def provisioning_since(state: State, *, required_only: bool = False) -> tuple[datetime, ...]:
    """Return when a VM was ordered for each replica whose current VM has not reported yet.

    `required_only`: without the replicas that the job may start without.
    """
    return tuple(
        replica.ordered_at
        for replica in state.replicas
        if replica.state in _AWAITING_VM
        and replica.ordered_at
        and not (required_only and not is_required(state.job.plan, replica.replica_id))
    )


def is_whole_gang_requested(state: State) -> bool:
    """Whether the gang may move without losing work: the job has not run yet, or no required
    replica has a VM whose agent has reported. `state` holds the whole attempt.
    """
    return not has_started(state) or not any(
        _has_reported(state.job, replica) for replica in state.replicas
    )


def _has_reported(job: Job, replica: Replica) -> bool:
    """Whether this is a required replica with a VM whose agent has reported."""
    is_up = not replica.awaits_vm and replica.state is not ReplicaState.COMPLETED
    return is_up and is_required(job.plan, replica.replica_id)


def search_began_at(state: State, now: datetime) -> datetime:
    """Return the first capacity error of the current search: the stored one if it belongs to this
    search, else now.

    The stored error belongs to an earlier search if a VM was ordered after it, unless the gang
    moved to another zone.
    """
    since = state.job.placement.since
    ordered_at = min(provisioning_since(state), default=None)
    is_other_search = (
        since is not None
        and ordered_at is not None
        and since < ordered_at
        and not _has_moved(state)
    )
    return now if since is None or is_other_search else since


def next_request_at(job: Job, since: datetime, now: datetime) -> datetime:
    """Return when VMs are requested again after a capacity error at `now`.

    It is the same for every repetition of the error.
    """
    elapsed = now - since
    wait = (
        RETRY_MIN
        if elapsed < FAST_RETRIES
        else min(max(elapsed * RETRY_SHARE, RETRY_MIN), RETRY_MAX)
    )
    return now + wait * (1 + RETRY_JITTER * _fraction(f"{job.job_id}/{job.placement.round}"))


def is_too_early(job: Job, now: datetime) -> bool:
    """Whether VMs may not be requested yet."""
    return job.placement.next_at is not None and now < job.placement.next_at


def _has_moved(state: State) -> bool:
    """Whether the current attempt continues a search that began before it, and no replica of it has
    been ready.

    A rerun for a cause other than missing capacity ends the search.
    """
    since = state.job.placement.since
    is_older = since is not None and all(
        replica.ordered_at and since <= replica.ordered_at for replica in state.replicas
    )
    return is_older and not any(replica.ever_ready for replica in state.replicas)


def _fraction(text: str) -> float:
    """Return a number between -1 and 1 that depends on `text` only."""
    bits_32 = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    return bits_32 / 2**31 - 1
