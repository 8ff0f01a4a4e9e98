"""Rule 11: Compute Engine has no machines, or no quota, or refuses.

before RUNNING     the gang moves from zone to zone, for a week at most where the job sets no maxWaitTime
later              what runs is kept, and the rest is requested beside it; then the whole gang moves, at no charge

How long a round over the zones is apart from the next one: `shared.core.rules.capacity_backoff`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from shared.core.decisions import Budget, ContinueProvisioning, Decision, FailJob, Ignore, Reason, RerunJob, Rule
from shared.core.events import CapacityErrorKind, VmsNotCreated, VmsQueued
from shared.core.model.job import Job, State
from shared.core.rules import messages
from shared.core.rules.capacity_backoff import (
    asks_at,
    began,
    is_round_over,
    is_whole_gang_requested,
    provisioning_since,
)
from shared.core.rules.replica_exit import internal_error

PARTIAL_GANG_WAIT_MAX_S: Final = 900
"""How long the healthy part of a gang is paid for while a VM for the rest is requested beside it: about what a rerun from
the last checkpoint in another zone costs a job that checkpoints every quarter of an hour."""

PROVISIONING_MAX_S: Final = 7 * 24 * 3600
"""How long machines are requested for a job that never ran and sets no maxWaitTime: as long as it might run by default.
Source: the service, too, stopped jobs after too many retries for want of a region's resources; it named no number."""
REFUSALS_MIN: Final = 100
"""Before that is said: a job may have waited most of the time for other jobs."""


def judge_vms_queued(state: State, event: VmsQueued, now: datetime) -> Decision:
    if not _is_present_request(state.job, event):
        return _no_longer_requested(event)
    text = f"{event.requested} waits in Cloud TPU's queue in {event.zone}."
    return Ignore(Rule.CAPACITY, Reason.QUEUED, text)


def _is_present_request(job: Job, event: VmsNotCreated | VmsQueued) -> bool:
    return (event.attempt, event.zone, event.round) == (job.attempt, job.zone, job.placement.round)


def _no_longer_requested(event: VmsNotCreated | VmsQueued) -> Ignore:
    return Ignore(Rule.STALE, Reason.NOTHING_TO_DO, f"VMs are no longer requested in {event.zone}.")


def judge_vms_not_created(state: State, event: VmsNotCreated, now: datetime) -> Decision:
    job = state.job
    if not _is_present_request(job, event):
        return _no_longer_requested(event)
    said = f"{event.code}: {' '.join(event.message.split()).rstrip('.')}"
    if event.error_kind is CapacityErrorKind.DENIED:
        message = messages.internal_error(f"Compute Engine refused to create {event.requested}: {said}")
        return FailJob(message, Rule.INTERNAL, Reason.DENIED, f"Google says {said}; trying again cannot help.")
    if event.error_kind is CapacityErrorKind.INTERNAL:
        return internal_error(job, f"Compute Engine could not create {event.requested}: {said}", Reason.CREATE_FAILED)
    return _sought_on(state, event, said, now)


def _sought_on(state: State, event: VmsNotCreated, said: str, now: datetime) -> Decision:
    job = state.job
    rounds = job.placement.round + 1
    if job.started_at is None and rounds >= REFUSALS_MIN and _age_s(job, now) >= PROVISIONING_MAX_S:
        text = (
            f"No machines for it within {PROVISIONING_MAX_S // 86400} days, in {rounds} tries; the last answer: {said}."
        )
        return FailJob(messages.exhausted(event.requested, said), Rule.CAPACITY, Reason.NEVER_ANY_CAPACITY, text)
    if event.error_kind is CapacityErrorKind.QUOTA:
        text = f"No quota for {event.requested} in {event.zone} ({said}): other zones of the region have none either"
        return _again(state, job.placement.zone_index, Reason.QUOTA, text, now, waits=True)
    return _no_room(state, event, said, now)


def _no_room(state: State, event: VmsNotCreated, said: str, now: datetime) -> Decision:
    job = state.job
    what = f"No room for {event.requested} in {event.zone}"
    zone_index = _next_zone(job, event)
    where = job.plan.zones[zone_index]
    if is_whole_gang_requested(state):
        text = f"{what} ({said}); trying {where} next"
        return _again(state, zone_index, Reason.STOCKOUT, text, now, waits=is_round_over(job))
    provisioning_s = max(((now - at).total_seconds() for at in provisioning_since(state)), default=0.0)
    if provisioning_s < PARTIAL_GANG_WAIT_MAX_S:
        text = f"{what} ({said}); the rest of the gang is kept, and {event.zone} is asked again"
        return _again(state, job.placement.zone_index, Reason.STOCKOUT, text, now, waits=True)
    text = f"{what} for {provisioning_s:.0f} s ({said}): the whole job moves to {where}, at no charge."
    return RerunJob(Budget.FREE, Rule.CAPACITY, Reason.STOCKOUT_LASTS, text, zone_index)


def _again(
    state: State, zone_index: int, reason: Reason, text: str, now: datetime, *, waits: bool
) -> ContinueProvisioning:
    since = began(state, now)
    next_at = asks_at(state.job, since, now) if waits else None
    when = f", in {(next_at - now).total_seconds():.0f} s" if next_at else ""
    rounds = state.job.placement.round + 1
    return ContinueProvisioning(zone_index, rounds, Rule.CAPACITY, reason, f"{text}{when}.", since, next_at)


def provisioning_until(job: Job) -> datetime | None:
    """When the job ends if there is no machine for it until then; None: it sets no limit."""
    plan = job.plan
    if job.started_at is not None:
        return job.started_at + timedelta(seconds=plan.max_running_s)
    return job.created_at + timedelta(seconds=plan.max_wait_s) if plan.max_wait_s is not None else None


def _age_s(job: Job, now: datetime) -> float:
    return (now - job.created_at).total_seconds()


def _next_zone(job: Job, event: VmsNotCreated) -> int:
    """One that Google named as available, else the next in order."""
    zones = job.plan.zones
    named = [zones.index(zone) for zone in event.zones_available if zone in zones and zone != event.zone]
    return named[0] if named else (job.placement.zone_index + 1) % len(zones)
