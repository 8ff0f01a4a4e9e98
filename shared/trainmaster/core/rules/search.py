"""The search for capacity in passes: where the gang is requested next after a capacity error.

    pass: each candidate once, at once ──► pause (`capacity_backoff`) ──► the next pass, in a new
    order (`outlook`)

A candidate is a zone of the plan, or of one of its alternatives (`Plan.options`). A pass keeps what
is left of it in the job's placement. The order of the next pass is decided with the last error of
the one before; a gang that leaves its zone after RUNNING begins a pass at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.core.events import CapacityErrorKind, VmsNotCreated
from trainmaster.core.model.capacity import Prospect, candidate_words, shares_quota
from trainmaster.core.model.floor import next_floor
from trainmaster.core.model.job import Job, State
from trainmaster.core.rules.capacity_backoff import next_request_at, search_began_at
from trainmaster.core.rules.outlook import UNKNOWN, in_order

CANDIDATES_SHOWN: Final = 8
"""Candidates that a sentence names, at most."""


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
    """Return the first request of a job.

    It waits if all candidates failed a moment ago, for other jobs.
    """
    order = _order(job, outlook, now, now) if outlook else _eligible(job, _all(job), now)
    first = order or _eligible(job, _all(job), now)
    return Turn(first[0], first[1:], waits=not order)


def after_losses(job: Job, now: datetime) -> Turn:
    """Return the request after VMs that were lost soon: elsewhere, with what is left of
    the pass.
    """
    others = tuple(number for number in _following(job) if number != job.placement.zone_index)
    left = job.placement.remaining or _eligible(job, others, now) or (job.placement.zone_index,)
    return Turn(left[0], left[1:])


def next_turn(state: State, event: VmsNotCreated, now: datetime) -> Turn:
    """Return the request that follows a capacity error.

    Zones that the error names come first in the pass.

    A used-up quota also drops the candidates that share it. If all do, the gang stays.
    """
    job = state.job
    current, remaining = job.placement.zone_index, _remaining(state, event, now)
    if event.error_kind is CapacityErrorKind.QUOTA:
        if not has_other_quota(job, event):
            return Turn(
                current, _eligible(job, [n for n in _all(job) if n != current], now), waits=True
            )
        remaining = tuple(
            n for n in remaining if not shares_quota(job.plan, current, n, event.message)
        )
    if remaining:
        zones, options = (
            job.plan.zones,
            [c.option for c in job.plan.candidates] or [0] * len(job.plan.zones),
        )
        named = (
            n
            for n in remaining
            if zones[n] in event.zones_available and options[n] == options[current]
        )
        following = next(named, remaining[0])
        return Turn(following, tuple(number for number in remaining if number != following))
    since = search_began_at(state, now)
    begins_at = next_request_at(job, since, now)
    order = _order(job, event.outlook, since, begins_at) or _eligible(
        job, _all(job), begins_at, since
    )
    return Turn(order[0], order[1:], waits=True)


def has_other_quota(job: Job, event: VmsNotCreated) -> bool:
    """Whether a candidate does not share the quota that is used up."""
    plan, current = job.plan, job.placement.zone_index
    return bool(plan.options) and not all(
        shares_quota(plan, current, n, event.message) for n in _all(job)
    )


def turn_with_vms(state: State, event: VmsNotCreated, now: datetime) -> Turn | None:
    """Return the request with which the VMs that exist may stay: of this pass, in the same zone,
    bought otherwise.
    """
    job = state.job
    left = _remaining(state, event, now) if job.plan.options else ()
    here = [number for number in left if job.plan.keeps_vms(job.placement.zone_index, number)]
    return Turn(here[0], tuple(number for number in left if number != here[0])) if here else None


def floor_of_move(state: State, candidate: int) -> int | None:
    """Return the floor of VM generations with which the gang moves to this candidate; None: it
    stays.
    """
    job, current = state.job, state.job.placement.zone_index
    if candidate == current:
        return None
    return (
        job.placement.floor
        if job.plan.keeps_vms(current, candidate)
        else next_floor(state.replicas)
    )


def describe_order(job: Job, order: Sequence[int], outlook: Sequence[Prospect]) -> str:
    """Return the candidates in the order of their requests, as another sentence; empty if nothing
    is known of them.
    """
    if not outlook or (
        not job.plan.options and all(prospect.chance == UNKNOWN for prospect in outlook)
    ):
        return ""
    shown = [
        f"{candidate_words(job.plan, n)} (chance {outlook[n].chance:.0%})"
        for n in order[:CANDIDATES_SHOWN]
    ]
    more = f", and {len(order) - len(shown)} more" if len(order) > len(shown) else ""
    return (
        f" {'Candidates' if job.plan.options else 'Zones'} in this order: {', '.join(shown)}{more}."
    )


def _remaining(state: State, event: VmsNotCreated, now: datetime) -> tuple[int, ...]:
    """Return what is left of the pass.

    The first pass after RUNNING begins when the gang leaves its zone.
    """
    job, left, since = state.job, state.job.placement.remaining, search_began_at(state, now)
    if left is None or (job.started_at is not None and since == now):
        return tuple(
            n for n in _order(job, event.outlook, since, now) if n != job.placement.zone_index
        )
    return left


def _order(
    job: Job, outlook: Sequence[Prospect], since: datetime, begins_at: datetime
) -> tuple[int, ...]:
    """Return the order of a pass; without an outlook, the candidates that follow the
    current one.
    """
    order = in_order(outlook, _ranks(job), begins_at) if outlook else _following(job)
    return _eligible(job, order, begins_at, since)


def _eligible(
    job: Job, order: Sequence[int], at: datetime, since: datetime | None = None
) -> tuple[int, ...]:
    """Return the candidates whose alternative may be requested in a search that began at `since`.

    Each job has some that may at any time.
    """
    began_at, plan = since or job.placement.since or at, job.plan
    elapsed_s = (at - began_at).total_seconds()
    return tuple(
        n
        for n in order
        if not plan.options or plan.options[plan.candidates[n].option].after_s <= elapsed_s
    )


def _following(job: Job) -> tuple[int, ...]:
    """Return all candidates, those that follow the current one first; those of alternatives by
    rank.
    """
    number = job.placement.zone_index + 1
    return _all(job) if job.plan.options else (*_all(job)[number:], *_all(job)[:number])


def _all(job: Job) -> tuple[int, ...]:
    """Return all candidates, those of alternatives by rank."""
    candidates, numbers = job.plan.candidates, range(len(job.plan.zones))
    return tuple(sorted(numbers, key=lambda n: candidates[n].rank) if candidates else numbers)


def _ranks(job: Job) -> tuple[int, ...]:
    """Return the rank of each candidate.

    Zones that the user has listed are ranked in this order.
    """
    if job.plan.options:
        return tuple(candidate.rank for candidate in job.plan.candidates)
    return _all(job) if job.plan.zones_listed else (0,) * len(job.plan.zones)
