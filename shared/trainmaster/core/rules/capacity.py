"""Rule 11: Compute Engine or Cloud TPU has no capacity, no quota, or returns another error.

The gang is the VMs of a job that are requested together, in one zone. Each request is a placement
round, and each one that fails is a capacity error. A candidate is a zone that may be tried, of the
plan or of one of its alternatives, given by its index. The turn is the candidate that is next, and
the candidates that remain after it.

    before RUNNING    the gang is requested in zone after zone; for a week at most if the job sets
                      no maxWaitTime
    after RUNNING     the healthy part is kept, and the rest is requested in the same zone for a
                      while; then the whole gang moves to the next zone, free of charge; at once
                      if no required VM is left
    optional VMs      (`gang: false`, or of members that an elastic job goes on without) are
                      requested in the zone of the required ones until the job ends
    refused           Google refuses the VMs, or fails: they are requested again. Before anything
                      of the job may run, that ends it: at once if another request cannot succeed,
                      else after an hour

`capacity_backoff` decides when VMs are requested again, and `search` where.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from trainmaster.core.actions import (
    Budget,
    ContinueProvisioning,
    FailJob,
    Ignore,
    NoteEmptyZones,
    RerunJob,
)
from trainmaster.core.decisions import Decision, Reason, Rule, stale
from trainmaster.core.events import (
    CapacityErrorKind,
    VmsNotCreated,
    VmsOutOfReach,
    VmsQueued,
    ZonesEmptied,
)
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import goes_on, is_member
from trainmaster.core.rules import messages
from trainmaster.core.rules.capacity_backoff import (
    is_whole_gang_requested,
    next_request_at,
    provisioning_since,
    search_began_at,
)
from trainmaster.core.rules.search import (
    Turn,
    floor_of_move,
    has_other_quota,
    next_turn,
    stay,
    turn_with_vms,
)
from trainmaster.core.timeouts import (
    CAPACITY_ERRORS_MIN,
    PARTIAL_GANG_WAIT_MAX_S,
    PROVISIONING_MAX_S,
    REFUSED_MAX,
)


def judge_vms_not_created(state: State, event: VmsNotCreated, now: datetime) -> Decision:
    """Decide what follows a capacity error. `state` holds the whole attempt."""
    job = state.job
    if not _is_current_request(job, event):
        return _no_longer_requested(event)
    if goes_on(state):  # without the missing members, which are optional then
        event = replace(event, required_present=True)
    error = f"{event.code}: {' '.join(event.message.split()).rstrip('.')}"
    match event.error_kind:
        case CapacityErrorKind.DENIED | CapacityErrorKind.BLOCKED | CapacityErrorKind.INTERNAL:
            return _after_refusal(state, event, error, now)
        case CapacityErrorKind.QUOTA | CapacityErrorKind.STOCKOUT:
            if _is_search_over(job, now):
                return _give_up(job, event, error)
            if event.error_kind is CapacityErrorKind.QUOTA and not has_other_quota(job, event):
                return _wait_for_quota(state, event, error, now)
            return _after_stockout(state, event, error, now)


def judge_vms_queued(state: State, event: VmsQueued, now: datetime) -> Decision:
    """Record once per placement round that the job waits in Cloud TPU's queue."""
    if not _is_current_request(state.job, event):
        return _no_longer_requested(event)
    text = f"{event.requested} waits in Cloud TPU's queue in {event.zone}."
    return Decision(Rule.CAPACITY, Reason.QUEUED, text, Ignore())


def judge_vms_out_of_reach(state: State, event: VmsOutOfReach, now: datetime) -> Decision:
    """Record that Google cannot list the VMs of a zone, so that nothing is done to them."""
    text = f"{event.problem}: changes of this job's VMs wait until that ends."
    return Decision(Rule.CAPACITY, Reason.OUT_OF_REACH, text, Ignore())


def judge_zones_emptied(state: State, event: ZonesEmptied, now: datetime) -> Decision:
    """Note that no program runs in the zones that the job has left, unless it has moved again."""
    job = state.job
    if (event.attempt, event.round) != (job.attempt, job.placement.round):
        return stale(Reason.OUTDATED, "The job has requested VMs since the listing.")
    zones = " and ".join(left.zone for left in job.placement.left)
    text = f"No VM of the job is left in {zones}."
    return Decision(Rule.CAPACITY, Reason.ZONES_EMPTIED, text, NoteEmptyZones())


def provisioning_deadline(job: Job) -> datetime | None:
    """Return the time at which the job fails if it has no VMs by then; None if it sets no limit."""
    limits = job.plan.limits
    if job.started_at is not None:
        return job.started_at + timedelta(seconds=limits.max_running_s)
    if limits.max_wait_s is None:
        return None
    return job.created_at + timedelta(seconds=limits.max_wait_s)


def _is_current_request(job: Job, event: VmsNotCreated | VmsQueued) -> bool:
    return (event.attempt, event.zone, event.round) == (job.attempt, job.zone, job.placement.round)


def _no_longer_requested(event: VmsNotCreated | VmsQueued) -> Decision:
    return stale(Reason.NOTHING_TO_DO, f"VMs are no longer requested in {event.zone}.")


def _is_search_over(job: Job, now: datetime) -> bool:
    """Whether a job that never ran has looked for capacity long enough, and often enough."""
    age_s = (now - job.created_at).total_seconds()
    errors = job.placement.round + 1
    return job.started_at is None and errors >= CAPACITY_ERRORS_MIN and age_s >= PROVISIONING_MAX_S


def _give_up(job: Job, event: VmsNotCreated, error: str) -> Decision:
    text = (
        f"No capacity for {event.requested} within {PROVISIONING_MAX_S // 86400} days, after "
        f"{job.placement.round + 1} capacity errors; the last one: {error}."
    )
    action = FailJob(messages.no_resources(event.requested, error))
    return Decision(Rule.CAPACITY, Reason.NEVER_ANY_CAPACITY, text, action)


def _wait_for_quota(state: State, event: VmsNotCreated, error: str, now: datetime) -> Decision:
    """Stay in the zone: all zones of a region share the quota."""
    text = (
        f"No quota for {event.requested} in {event.zone}, nor in the other zones of the region"
        f" ({error}): trying again"
    )
    return _continue(state, next_turn(state, event, now), Reason.QUOTA, text, event, now)


def _after_refusal(state: State, event: VmsNotCreated, error: str, now: datetime) -> Decision:
    """Request the VMs again, or end the job. A job ends only while none of its programs can have
    run: at once if the request itself is wrong and the job has no alternative, else after
    `REFUSED_MAX`.

    If something runs, Google accepted the same request before, so the cause will end.
    """
    job = state.job
    refused_until = _blocked_since(job, now) + REFUSED_MAX
    is_final = event.error_kind is CapacityErrorKind.DENIED and not job.plan.where.options
    is_given_up = is_final or now >= refused_until
    may_end = not _may_something_run(state)
    if may_end and is_given_up:
        cause = f"Compute Engine refused to create {event.requested}: {error}"
        failure = FailJob(messages.internal_error(cause))
        return Decision(Rule.CAPACITY, Reason.BLOCKED, f"{cause}; the job is given up.", failure)
    limit = f", at most until {refused_until:%Y-%m-%d %H:%M} UTC" if may_end else ""
    is_failure = event.error_kind is CapacityErrorKind.INTERNAL
    repair = "" if is_failure else ", which an operator can repair"
    verb = "fails to create" if is_failure else "refuses"
    text = f"Google {verb} {event.requested} ({error}){repair}{limit}: trying again"
    # Google may refuse one alternative and accept another. VMs that exist hold the job here.
    may_move = is_whole_gang_requested(state) and not event.required_present
    tries_alternatives = bool(job.plan.where.options) and may_move
    turn = next_turn(state, event, now) if tries_alternatives else stay(job)
    text += (
        f" with {candidate_words(job.plan, turn.candidate)}"
        if turn.candidate != job.placement.zone_index
        else ""
    )
    return _continue(state, turn, Reason.BLOCKED, text, event, now)


def _may_something_run(state: State) -> bool:
    """Whether a program of the job may have run: members of a synchronous job run from RUNNING on,
    any other replica as soon as it is ready.
    """
    job = state.job
    return job.started_at is not None or any(
        replica.ever_ready and not is_member(job.plan, replica.replica_id)
        for replica in state.replicas
    )


def _blocked_since(job: Job, now: datetime) -> datetime:
    return job.placement.blocked_since or now


def _after_stockout(state: State, event: VmsNotCreated, error: str, now: datetime) -> Decision:
    """Decide after a stockout, or a used-up quota that other candidates do not share."""
    job = state.job
    reason = Reason.QUOTA if event.error_kind is CapacityErrorKind.QUOTA else Reason.STOCKOUT
    problem = (
        f"No {'quota' if reason is Reason.QUOTA else 'capacity'} for {event.requested} in"
        f" {event.zone}"
    )
    turn = next_turn(state, event, now)
    may_move = is_whole_gang_requested(state)
    with_vms = turn_with_vms(state, event, now) if job.plan.restarts.gang and not may_move else None
    if with_vms is not None:
        # The VMs that exist stay: the others are only requested in another way of buying.
        turn = with_vms
        may_move = True
    elif event.required_present:
        text = f"{problem} ({error}): the job runs without these VMs, and tries {event.zone} again"
        return _continue(state, stay(job), reason, text, event, now)
    zone = candidate_words(job.plan, turn.candidate)
    if may_move:
        chance = (
            f" (chance {event.outlook[turn.candidate].chance:.0%})"
            if job.plan.where.options and event.outlook
            else ""
        )
        text = f"{problem} ({error}): trying {zone} next{chance}"
        return _continue(state, turn, reason, text, event, now)
    waited_s = _waited_for_required_s(state, now)
    if waited_s < PARTIAL_GANG_WAIT_MAX_S:
        text = f"{problem} ({error}): keeping the rest of the gang and trying {event.zone} again"
        return _continue(state, stay(job), reason, text, event, now)
    text = (
        f"{problem} for {waited_s:.0f} s ({error}): the whole job moves to {zone}, free of charge."
    )
    rerun = RerunJob(Budget.FREE, turn.candidate, remaining=turn.remaining)
    return Decision(Rule.CAPACITY, Reason.STOCKOUT, text, rerun)


def _waited_for_required_s(state: State, now: datetime) -> float:
    """Return for how many seconds the job has waited for its longest missing required VM."""
    job = state.job
    since = provisioning_since(state, required_only=True)
    if job.plan.restarts.elastic and job.round.ordered_at:
        # Until its last round ended, the job went on without some of them.
        since = tuple(max(at, job.round.ordered_at) for at in since)
    return max(((now - at).total_seconds() for at in since), default=0.0)


def _continue(
    state: State, turn: Turn, reason: Reason, text: str, event: VmsNotCreated, now: datetime
) -> Decision:
    """Begin the next placement round.

    A search for required VMs and one for optional VMs have backoffs of their own.
    """
    is_other_search = state.job.placement.only_optional is not event.required_present
    since = now if is_other_search else search_began_at(state, now)
    next_at = next_request_at(state.job, since, now) if turn.waits else None
    when = f" in {(next_at - now).total_seconds():.0f} s" if next_at else ""
    action = ContinueProvisioning(
        turn.candidate,
        state.job.placement.round + 1,
        since,
        next_at,
        only_optional=event.required_present,
        problem=messages.capacity_problem(event),
        blocked_since=_blocked_since(state.job, now) if reason is Reason.BLOCKED else None,
        remaining=turn.remaining,
        # VMs of a generation below the floor are deleted.
        floor=floor_of_move(state, turn.candidate),
    )
    return Decision(Rule.CAPACITY, reason, f"{text}{when}.", action)
