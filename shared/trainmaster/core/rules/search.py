"""The search for capacity in passes: where the gang, the VMs of a job that are still missing, is
requested next after Google could not create them.

    pass: each candidate once, at once ──► pause (`capacity_backoff`)
                                       ──► the next pass, in a new order (`outlook`)

A candidate is a zone of the plan, or of one of its alternatives (`Where.options`), given by its
number, an index into `Where.zones`. `Placement.zone_index` is the current one, and
`Placement.remaining` what is left of the pass. The outlook is what is known of the capacity of each
candidate; it orders a pass.

The order of the next pass is decided with the last error of the one before. A gang that leaves its
zone after RUNNING begins a pass at once.
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
from trainmaster.core.model.plan import Plan
from trainmaster.core.rules.capacity_backoff import next_request_at, search_began_at
from trainmaster.core.rules.outlook import UNKNOWN, in_order

CANDIDATES_SHOWN: Final = 8
"""Candidates that a sentence names, at most."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The next request for the missing VMs."""

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
    """Return the request that follows the loss of wasted VMs: for the next candidate of the pass,
    in another place.
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
    current = job.placement.zone_index
    remaining = _remaining(state, event, now)
    if event.error_kind is CapacityErrorKind.QUOTA:
        if not has_other_quota(job, event):
            others = [candidate for candidate in _all(job) if candidate != current]
            return Turn(current, _eligible(job, others, now), waits=True)
        remaining = tuple(
            candidate
            for candidate in remaining
            if not shares_quota(job.plan, current, candidate, event.message)
        )
    if remaining:
        named = (
            candidate
            for candidate in remaining
            if job.plan.where.zones[candidate] in event.zones_available
            and _is_same_option(job.plan, candidate, current)
        )
        following = next(named, remaining[0])
        return Turn(following, tuple(number for number in remaining if number != following))
    since = search_began_at(state, now)
    begins_at = next_request_at(job, since, now)
    order = _order(job, event.outlook, since, begins_at) or _eligible(
        job, _all(job), begins_at, since
    )
    return Turn(order[0], order[1:], waits=True)


def _is_same_option(plan: Plan, candidate: int, other: int) -> bool:
    """Whether two candidates are of the same alternative; all are if the plan has none."""
    if not plan.where.options:
        return True
    return plan.where.candidates[candidate].option == plan.where.candidates[other].option


def has_other_quota(job: Job, event: VmsNotCreated) -> bool:
    """Whether a candidate does not share the quota that is used up."""
    plan = job.plan
    current = job.placement.zone_index
    return bool(plan.where.options) and not all(
        shares_quota(plan, current, candidate, event.message) for candidate in _all(job)
    )


def turn_with_vms(state: State, event: VmsNotCreated, now: datetime) -> Turn | None:
    """Return the next request of this pass with which the VMs that exist may stay, because only the
    way of buying differs; None: there is none.
    """
    job = state.job
    left = _remaining(state, event, now) if job.plan.where.options else ()
    here = [number for number in left if job.plan.keeps_vms(job.placement.zone_index, number)]
    return Turn(here[0], tuple(number for number in left if number != here[0])) if here else None


def floor_of_move(state: State, candidate: int) -> int | None:
    """Return the lowest VM generation that counts after the move to this candidate; None: the gang
    stays.

    VMs below it are deleted. A move within a zone to another way of buying keeps them.
    """
    job = state.job
    current = job.placement.zone_index
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
    has_alternatives = bool(job.plan.where.options)
    is_anything_known = any(prospect.chance != UNKNOWN for prospect in outlook)
    if not outlook or not (has_alternatives or is_anything_known):
        return ""
    shown = [
        f"{candidate_words(job.plan, candidate)} (chance {outlook[candidate].chance:.0%})"
        for candidate in order[:CANDIDATES_SHOWN]
    ]
    more = f", and {len(order) - len(shown)} more" if len(order) > len(shown) else ""
    what = "Candidates" if job.plan.where.options else "Zones"
    return f" {what} in this order: {', '.join(shown)}{more}."


def _remaining(state: State, event: VmsNotCreated, now: datetime) -> tuple[int, ...]:
    """Return what is left of the pass.

    If none has begun, or with the first error of a search after RUNNING, a pass begins: all
    candidates but the current one are left.
    """
    job = state.job
    left = job.placement.remaining
    since = search_began_at(state, now)
    is_first_error = since == now  # of this search
    leaves_zone = job.started_at is not None and is_first_error
    if left is not None and not leaves_zone:
        return left
    order = _order(job, event.outlook, since, now)
    return tuple(candidate for candidate in order if candidate != job.placement.zone_index)


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

    Each job has some without such a time.
    """
    plan = job.plan
    if not plan.where.options:
        return tuple(order)
    began_at = since or job.placement.since or at
    elapsed_s = (at - began_at).total_seconds()
    return tuple(
        candidate
        for candidate in order
        if plan.where.options[plan.where.candidates[candidate].option].after_s <= elapsed_s
    )


def _following(job: Job) -> tuple[int, ...]:
    """Return all candidates, those that follow the current one first; those of alternatives by
    rank.
    """
    candidates = _all(job)
    if job.plan.where.options:
        return candidates
    following = job.placement.zone_index + 1
    return (*candidates[following:], *candidates[:following])


def _all(job: Job) -> tuple[int, ...]:
    """Return all candidates, those of alternatives by rank."""
    candidates = job.plan.where.candidates
    numbers = range(len(job.plan.where.zones))
    if not candidates:
        return tuple(numbers)
    return tuple(sorted(numbers, key=lambda number: candidates[number].rank))


def _ranks(job: Job) -> tuple[int, ...]:
    """Return the rank of each candidate.

    Zones that the user has listed are ranked in this order.
    """
    if job.plan.where.options:
        return tuple(candidate.rank for candidate in job.plan.where.candidates)
    return _all(job) if job.plan.where.zones_listed else (0,) * len(job.plan.where.zones)
