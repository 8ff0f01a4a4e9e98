"""How the actions on a round change the stored state.

A round is one common run of the members of a synchronous job. While it is held, they wait for each
other; when one of them ends, the next round is held:

    held ── BeginRound ──► running ── StopRound ──► the next one is held
                              └── SaveRound: still running, and its programs are asked to save

`job_actions` calls `change_round`. All functions are pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from trainmaster.core.actions import BeginRound, Budget, SaveRound, StopRound
from trainmaster.core.model.job import Job, Placement, State
from trainmaster.core.model.members import is_held, is_member, may_go_without
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.transitions.change import (
    PROVISION,
    Change,
    IllegalTransitionError,
    find_replica,
    with_next_version,
)
from trainmaster.core.transitions.replica_actions import charged, job_after_loss, replace_vm


def change_round(state: State, action: StopRound | SaveRound | BeginRound, now: datetime) -> Change:
    """Return the change that the action makes to the round.

    Raises IllegalTransitionError for an action on another round than the current one.
    """
    match action:
        case StopRound():
            return _stop_round(state, action, now)
        case SaveRound():
            return _save_round(state.job, action)
        case BeginRound():
            return _begin_round(state, action, now)


def _stop_round(state: State, action: StopRound, now: datetime) -> Change:
    """End the running round and hold the next one; with `replacement`, one member gets another VM.

    Other members are not written, however many there are: `core.model.members` reads their
    documents together with the job's, which shows that their round has ended.
    """
    if action.number != state.job.round.number:
        raise IllegalTransitionError(
            f"round {action.number} is not the current one: {state.job.round}"
        )
    replica = find_replica(state, action.replica)
    job = (
        job_after_loss(state.job, replica, action.replacement) if action.replacement else None
    ) or state.job
    is_vm_lost = action.replacement is not None
    held = _next_held_round(job, replica.replica_id, now, is_vm_lost=is_vm_lost)
    changed: tuple[Replica, ...] = ()
    if action.replacement:
        changed = (replace_vm(job.plan, replica, action.replacement, now),)
    return Change(replace(job, round=held, version=state.job.version + 1), changed, PROVISION)


def round_after_loss(job: Job, replica: Replica, now: datetime) -> Round:
    """Return the job's round after the loss of this replica's VM."""
    runs_in_round = is_member(job.plan, replica.replica_id) and not is_held(job, replica.replica_id)
    if not runs_in_round:
        return job.round
    return _next_held_round(job, replica.replica_id, now, is_vm_lost=True)


def _next_held_round(job: Job, stopped_by: ReplicaId, now: datetime, *, is_vm_lost: bool) -> Round:
    """Return the held round that follows the current one.

    An elastic job goes on without the members that it went without before, unless this loss leaves
    too few.
    """
    ended = job.round
    is_enough = not is_vm_lost or may_go_without(job.plan, {*ended.without, stopped_by})
    return replace(
        ended,
        number=ended.number + 1,
        is_held=True,
        ordered_at=now,
        stopped_by=stopped_by,
        saving=ended.saving if ended.ends_job else None,
        without=ended.without if is_enough else (),
    )


def _begin_round(state: State, action: BeginRound, now: datetime) -> Change:
    """Let the members run, and charge the one that ended the round before, if any."""
    job = state.job
    held = state.job.round
    require_held_round(job, action.number)
    has_grown = not set(held.without) <= set(action.without)
    begun = replace(
        held,
        is_held=False,
        began_at=now,
        without=action.without,
        grown_at=now if has_grown else held.grown_at,
    )
    replicas: tuple[Replica, ...] = ()
    if action.replica:
        begun = replace(
            begun,
            quick_failures=held.quick_failures + 1 if action.is_quick_failure else 0,
            bug=action.bug,
            failing=action.failing,
        )
        if action.charge is not Budget.FREE:
            decider = charged(job.plan, find_replica(state, action.replica), action, now)
            replicas = (with_next_version(decider),)
    begun_job = replace(job, round=begun, placement=without_older_programs(job.placement))
    return Change(replace(begun_job, version=job.version + 1), replicas, PROVISION)


def _save_round(job: Job, action: SaveRound) -> Change:
    """Store that the members of the running round are asked to save."""
    if action.number != job.round.number or job.round.is_held:
        raise IllegalTransitionError(f"round {action.number} does not run: {job.round}")
    saving = replace(job, round=replace(job.round, saving=action.saving), version=job.version + 1)
    return Change(saving, effects=PROVISION if action.saving.asked else ())


def require_held_round(job: Job, number: int) -> None:
    """Raise IllegalTransitionError unless the job's current round has this number and is held."""
    if number != job.round.number or not job.round.is_held:
        raise IllegalTransitionError(f"round {number} is not held: {job.round}")


def without_older_programs(placement: Placement) -> Placement:
    """Return the placement once nothing runs in the zones that the job has left: all members of a
    round are ready, or no VM is left there.
    """
    return replace(placement, left=tuple(replace(left, may_run=False) for left in placement.left))
