"""The search for capacity in passes: where the gang is requested next after a capacity error.

    pass: each candidate once, at once ──► pause (`capacity_backoff`) ──► the next pass, in a new order (`outlook`)

A candidate is a zone of the plan. A pass keeps what is left of it in the job's placement. The order of the next pass is
decided with the last error of the one before; a gang that leaves its zone after RUNNING begins a pass at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.events import VmsNotCreated
from trainmaster.core.model.capacity import Prospect
from trainmaster.core.model.job import Job, State
from trainmaster.core.rules.capacity_backoff import next_request_at, search_began_at
from trainmaster.core.rules.outlook import UNKNOWN, in_order


@dataclass(frozen=True, slots=True)
class Turn:
    """The next request."""

    candidate: int
    remaining: tuple[int, ...] | None
    """The candidates of the pass that follow."""
    waits: bool = False
    """Whether the request begins a pass, after a pause."""


def stay(job: Job) -> Turn:
    """Return the turn that requests VMs where they are requested now, after a pause."""
    return Turn(job.placement.zone_index, job.placement.remaining, waits=True)


def may_begin_pass(job: Job) -> bool:
    """Whether a pass may begin with the next capacity error, so that an outlook is needed."""
    return not job.placement.remaining or job.started_at is not None


def first_turn(job: Job, outlook: Sequence[Prospect], now: datetime) -> Turn:
    """Return the first request of a job. It waits if all candidates failed a moment ago, for other jobs."""
    order = in_order(outlook, _ranks(job), now) if outlook else _all(job)
    return Turn(order[0], order[1:]) if order else Turn(_all(job)[0], _all(job)[1:], waits=True)


def after_losses(job: Job) -> Turn:
    """Return the request after VMs that were lost soon: elsewhere, with what is left of the pass."""
    left = job.placement.remaining or _following(job)[:-1]
    return Turn(left[0], left[1:])


def next_turn(state: State, event: VmsNotCreated, now: datetime, *, same_in_all: bool = False) -> Turn:
    """Return the request that follows a capacity error. Zones that the error names come first in the pass.

    `same_in_all`: the error holds in all zones of the region, such as a used-up quota. Then the gang stays.
    """
    job = state.job
    current, remaining = job.placement.zone_index, _remaining(state, event, now)
    if same_in_all:
        return Turn(current, tuple(number for number in _all(job) if number != current), waits=True)
    if remaining:
        zones = job.plan.zones
        following = next((number for number in remaining if zones[number] in event.zones_available), remaining[0])
        return Turn(following, tuple(number for number in remaining if number != following))
    begins_at = next_request_at(job, search_began_at(state, now), now)
    order = _order(job, event.outlook, begins_at) or _all(job)
    return Turn(order[0], order[1:], waits=True)


def describe_order(job: Job, order: Sequence[int], outlook: Sequence[Prospect]) -> str:
    """Return the zones in the order of their requests, as another sentence; empty if nothing is known about them."""
    if all(prospect.chance == UNKNOWN for prospect in outlook):
        return ""
    zones = (f"{job.plan.zones[number]} (chance {outlook[number].chance:.0%})" for number in order)
    return f" Zones in this order: {', '.join(zones)}."


def _remaining(state: State, event: VmsNotCreated, now: datetime) -> tuple[int, ...]:
    """Return what is left of the pass. The first pass after RUNNING begins when the gang leaves its zone."""
    job, left = state.job, state.job.placement.remaining
    if left is None or (job.started_at is not None and search_began_at(state, now) == now):
        return tuple(number for number in _order(job, event.outlook, now) if number != job.placement.zone_index)
    return left


def _order(job: Job, outlook: Sequence[Prospect], begins_at: datetime) -> tuple[int, ...]:
    """Return the order of a pass; without an outlook, the zones that follow the current one."""
    return in_order(outlook, _ranks(job), begins_at) if outlook else _following(job)


def _following(job: Job) -> tuple[int, ...]:
    """Return all candidates, those that follow the current one first."""
    number = job.placement.zone_index + 1
    return (*_all(job)[number:], *_all(job)[:number])


def _all(job: Job) -> tuple[int, ...]:
    return tuple(range(len(job.plan.zones)))


def _ranks(job: Job) -> tuple[int, ...]:
    """Return the rank of each candidate. Zones that the user has listed are ranked in this order."""
    return _all(job) if job.plan.zones_listed else (0,) * len(job.plan.zones)
