"""When machines are asked for again after a capacity error: at once in the next zone; after the last one, later and later.

    refused first ── for an hour: a round a minute ── then: when a thirtieth of the time has passed ── a quarter hour

Capacity that was just given back is had by who asks soon; what is short for hours is short for days. A round is one
capacity error in each of the job's zones, so a search that lasts a week writes some 750 refusals a zone into the ledger.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from shared.core.model.job import Job, State
from shared.core.model.replica import ReplicaState

QUICK: Final = timedelta(hours=1)
WAIT_MIN: Final = timedelta(seconds=50)
"""A little less than the sweep's minute, which is what asks again."""
WAIT_MAX: Final = timedelta(minutes=15)
WAIT_SHARE: Final = 1 / 30
"""Of the time requested so far."""
JITTER: Final = 0.1
"""More or less of the wait, so that jobs that were refused together do not ask together for ever."""

_SOUGHT: Final = (ReplicaState.WAITING, ReplicaState.REPLACING)


def provisioning_since(state: State) -> tuple[datetime, ...]:
    """Since when a VM is desired for each replica on whose machine no agent has spoken yet."""
    return tuple(each.ordered_at for each in state.replicas if each.state in _SOUGHT and each.ordered_at)


def is_whole_gang_requested(state: State) -> bool:
    """Nothing of the gang is kept: it has not run yet, or nobody is up where all of it moved to."""
    return state.job.started_at is None or _has_moved(state)


def began(state: State, now: datetime) -> datetime:
    """When this search was refused for the first time: now, unless the stored one is this search's."""
    since, desired = state.job.placement.since, min(provisioning_since(state), default=None)
    is_older = since is not None and desired is not None and since < desired and not _has_moved(state)
    return now if since is None or is_older else since


def _has_moved(state: State) -> bool:
    """The search is older than the attempt, and nobody of it is up. A rerun for another cause ends the search."""
    since = state.job.placement.since
    is_older = since is not None and all(each.ordered_at and since <= each.ordered_at for each in state.replicas)
    return is_older and not any(each.ever_ready for each in state.replicas)


def asks_at(job: Job, since: datetime, now: datetime) -> datetime:
    """When the next round begins after one that ended now. The same for every repetition of this very capacity error."""
    requested = now - since
    wait = WAIT_MIN if requested < QUICK else min(max(requested * WAIT_SHARE, WAIT_MIN), WAIT_MAX)
    return now + wait * (1 + JITTER * _chance(f"{job.job_id}/{job.placement.round}"))


def is_round_over(job: Job) -> bool:
    """Whether the capacity error of the present round number is the last one of a round over all zones."""
    return (job.placement.round + 1) % len(job.plan.zones) == 0


def is_too_early(job: Job, now: datetime) -> bool:
    return job.placement.next_at is not None and now < job.placement.next_at


def _chance(what: str) -> float:
    """Between -1 and 1."""
    return int.from_bytes(hashlib.sha256(what.encode()).digest()[:4]) / 2**31 - 1
