"""Wasted machines (rule 4): VMs of a replica, in a row, that end before ten useful minutes.

`Replica.wasted` counts them:

    lost, silent, unfit, or rebooted early   1
    its agent did not report                 3   it was paid as long as three others
    it could not be set up                  10   three tries in all, as AI Platform Training had

What follows, besides another VM:

    second and further ones   a pause that doubles, up to a quarter of an hour; after failed set-ups
                              five minutes, and then one hour. Replicas that always start together
                              (in a round) wait together, and any other replica alone
    at 3, 6, 9 ...            the next zone, with all other VMs that have not reported. The first
                              wasted machine and a failed set-up show nothing about the zone. An
                              agent that did not report moves the gang only while no VM of it runs
    at 30                     the job FAILED

A VM that lived longer ends the series. A replica that the job may run without (`gang: false`,
`elastic`) stays in its zone, and its machines never end the job. The gang is all VMs of a job that
are requested together.

Such machines are a shortage of Spot VMs that no stockout reports, an image that shuts its VM down,
or an outage of what a set-up downloads. Without a limit, they would cost a boot per minute and
replica for as long as the job may run.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.decisions import Reason
from trainmaster.core.model.gang import is_required
from trainmaster.core.model.job import State
from trainmaster.core.model.members import can_spare
from trainmaster.core.model.replica import Replica
from trainmaster.core.rules.capacity_backoff import is_whole_gang_requested
from trainmaster.core.timeouts import (
    RETRY_MAX,
    RETRY_MIN,
    SETUP_PAUSES,
    USEFUL_LIFE_MIN,
    WASTED_MAX,
    WASTED_PER_ZONE,
)

_BY_TIMEOUT: Final = 3
"""How many wasted machines an agent that did not report counts as."""
_BY_SETUP: Final = WASTED_MAX // (len(SETUP_PAUSES) + 1)
"""How many a failed set-up counts as: the limit is reached after one try more than pauses."""
_DOUBLINGS_MAX: Final = 10
"""With these doublings, the pause is far longer than `RETRY_MAX`.

Without a limit, it would overflow a timedelta.
"""


def is_short_life(since: datetime | None, at: datetime) -> bool:
    """Whether what began at `since` and ended at `at` had no ten useful minutes.

    `since` None: it never began.
    """
    return since is None or at - since < USEFUL_LIFE_MIN


def count_wasted(replica: Replica, reason: Reason, at: datetime) -> int:
    """Return `Replica.wasted` after the end of the current VM at this time; 0: it was not wasted.

    A set-up may fail on any VM, and a reboot is judged by how long the program ran: both count
    whatever the age of the VM.
    """
    is_always_wasted = reason in (Reason.SETUP_FAILED, Reason.VM_RESTARTED)
    if not is_always_wasted and not is_short_life(replica.vm_since, at):
        return 0
    by_reason = {Reason.STARTUP_TIMEOUT: _BY_TIMEOUT, Reason.SETUP_FAILED: _BY_SETUP}
    return replica.wasted + by_reason.get(reason, 1)


def is_limit_reached(state: State, replica: Replica, wasted: int) -> bool:
    """Whether the job ends, because the replica has wasted `wasted` machines in a row."""
    return wasted >= WASTED_MAX and _is_indispensable(state, replica)


def is_zone_exhausted(state: State, replica: Replica, reason: Reason, wasted: int) -> bool:
    """Whether required VMs are requested in another zone, if there is one, from now on.

    `wasted`: the count with the current machine; `replica.wasted` is the count before it.
    """
    completes_three = wasted // WASTED_PER_ZONE > replica.wasted // WASTED_PER_ZONE
    is_not_first = replica.wasted > 0
    has_other_zone = len(state.job.plan.where.zones) > 1
    if not (
        completes_three and is_not_first and has_other_zone and _is_indispensable(state, replica)
    ):
        return False
    if reason is Reason.STARTUP_TIMEOUT:
        return is_whole_gang_requested(state)
    return reason is not Reason.SETUP_FAILED


def pause_after(state: State, replica: Replica, reason: Reason, wasted: int) -> timedelta:
    """Return the pause before VMs are requested again; 0: none."""
    if wasted <= 1:
        return timedelta()
    if reason is Reason.SETUP_FAILED and _is_indispensable(state, replica):
        tries = min(wasted // _BY_SETUP, len(SETUP_PAUSES))
        return SETUP_PAUSES[tries - 1]
    pause: timedelta = RETRY_MIN * 2 ** min(wasted - 2, _DOUBLINGS_MAX)
    return min(pause, RETRY_MAX)


def _is_indispensable(state: State, replica: Replica) -> bool:
    """Whether the job cannot go on without the replica."""
    return is_required(state.job.plan, replica.replica_id) and not can_spare(
        state, replica.replica_id
    )
