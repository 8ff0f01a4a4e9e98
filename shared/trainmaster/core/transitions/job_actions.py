"""How the actions on a job as a whole change the stored state.

An action is the result of a rule (`core.rules`). For each action, a function here returns the
documents that it changes, and the effects that follow their commit: `PROVISION` requests that the
VMs be made equal to the new state. All functions are pure.

A round is one common start of the replicas of a synchronous job; it is held until all of them are
ready. The gang is all VMs of the job, which are in one zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from trainmaster.core.actions import (
    BeginPreparing,
    BeginRound,
    BeginRunning,
    Budget,
    CancelJob,
    CompleteTuning,
    ContinueProvisioning,
    DeleteJob,
    DropMachines,
    FailJob,
    JobAction,
    NoteCost,
    NoteEmptyZones,
    ReleaseMachines,
    RerunJob,
    SaveRound,
    SetLabels,
    StopRound,
    SucceedJob,
)
from trainmaster.core.model.floor import NO_VM
from trainmaster.core.model.job import Job, JobState, LeftZone, Placement, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.round import Round
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.transitions.change import (
    PROVISION,
    Change,
    IllegalTransitionError,
    find_replica,
    move_job,
    move_replica,
    with_next_version,
)
from trainmaster.core.transitions.kept_machines import (
    released_set,
    set_after_loss,
    taken_set,
    taking_replicas,
    with_taken,
)
from trainmaster.core.transitions.replica_actions import replace_vm
from trainmaster.core.transitions.round_actions import (
    change_round,
    require_held_round,
    round_after_loss,
    without_older_programs,
)


def accept_job(job: Job, now: datetime) -> Change:
    """Return the documents of a new job. A tuning job has no replicas."""
    replica_ids = () if job.tuning else job.plan.replica_ids
    replicas = tuple(Replica(job.attempt, replica_id, ordered_at=now) for replica_id in replica_ids)
    return Change(job, replicas, PROVISION)


def change_job(state: State, action: JobAction, now: datetime) -> Change:
    """Return the change that the action makes to the job."""
    job = state.job
    match action:
        case BeginPreparing():
            return _begin_preparing(state, action, now)
        case BeginRunning():
            return _begin_running(job, action, now)
        case ContinueProvisioning():
            return _continue_provisioning(state, action, now)
        case StopRound() | SaveRound() | BeginRound():
            return change_round(state, action, now)
        case RerunJob():
            return _rerun(state, action, now)
        case SucceedJob():
            return _succeed(state, action, now)
        case FailJob():
            noted = replace(job, last_progress=action.progress)
            ended = move_job(noted, JobState.FAILED, ended_at=now, error_message=action.message)
            replicas = (
                (with_next_version(find_replica(state, action.replica)),) if action.replica else ()
            )
            return Change(ended, replicas, PROVISION)
        case CancelJob():
            ended = move_job(job, JobState.CANCELLED, ended_at=now, error_message=action.message)
            return Change(ended, effects=PROVISION)
        case NoteCost() | NoteEmptyZones() | SetLabels():
            return _noted(job, action)
        case DeleteJob() | ReleaseMachines() | DropMachines():
            return _release(state, action, now)
        case CompleteTuning():
            return Change(move_job(job, JobState.SUCCEEDED, ended_at=now), effects=PROVISION)
        case _:
            assert_never(action)


def _begin_preparing(state: State, action: BeginPreparing, now: datetime) -> Change:
    """Take the job out of the admission queue: it requests VMs, or takes kept ones."""
    job = state.job
    placed = replace(job, placement=_first_placement(job, action))
    effects = PROVISION if action.requests_vms else ()
    if action.taken is None:
        return Change(move_job(placed, JobState.PREPARING), effects=effects)
    _require_whole_attempt(state)
    taking = move_job(with_taken(placed, action.taken), JobState.PREPARING)
    replicas = taking_replicas(state.replicas, action.taken, now)
    return Change(taking, replicas, effects, taken_set(action.taken, job, now))


def _release(
    state: State, action: DeleteJob | ReleaseMachines | DropMachines, now: datetime
) -> Change:
    """Release the machines that the job keeps, or drop some. A deleted job keeps none."""
    job = None
    if isinstance(action, DeleteJob):
        job = replace(state.job, deleted_at=now, version=state.job.version + 1)
    machines = None
    if state.machine_set is not None and state.keeps_machines:
        machines = (
            set_after_loss(state.machine_set, action.instance_ids, now)
            if isinstance(action, DropMachines)
            else released_set(state.machine_set, now)
        )
    return Change(job, effects=PROVISION, machines=machines)


def _continue_provisioning(state: State, action: ContinueProvisioning, now: datetime) -> Change:
    """Begin the next request for missing VMs, perhaps in another zone or after a lost VM."""
    job = state.job
    placement = replace(
        _placed(job, action.zone_index),
        round=action.round,
        since=action.since,
        next_at=action.next_at,
        only_optional=action.only_optional,
        problem=action.problem,
        blocked_since=action.blocked_since,
        remaining=action.remaining,
        floor=action.floor or job.placement.floor,
    )
    stopped = job.round
    if action.replacement:
        stopped = round_after_loss(job, find_replica(state, action.replacement.replica), now)
    provisioned = replace(job, placement=placement, round=stopped, version=job.version + 1)
    return Change(provisioned, _request_vms(state, action, now), PROVISION)


def _begin_running(job: Job, action: BeginRunning, now: datetime) -> Change:
    """Let the job run; a synchronous one begins its first round."""
    placed = replace(job, placement=replace(job.placement, remaining=None))
    started = move_job(placed, JobState.RUNNING, started_at=now)
    if action.round is None:
        return Change(started)
    require_held_round(job, action.round)
    return Change(
        replace(started, round=replace(job.round, is_held=False, began_at=now)), effects=PROVISION
    )


def _noted(job: Job, action: NoteCost | NoteEmptyZones | SetLabels) -> Change:
    """Write one note to the job: its labels, that the zones before the current one are empty, or
    its cost with the time of the next computation.
    """
    version = job.version + 1
    if isinstance(action, NoteEmptyZones):
        placement = without_older_programs(job.placement)
        return Change(replace(job, placement=placement, version=version))
    if isinstance(action, SetLabels):
        return Change(
            replace(
                job, labels=action.labels, labels_version=job.labels_version + 1, version=version
            )
        )
    limits = job.plan.limits
    cap = limits.cap and replace(limits.cap, spent=action.spent, computed_at=action.computed_at)
    plan = replace(job.plan, limits=replace(limits, cap=cap))
    noted = replace(job, plan=plan, cost_check_at=action.next_at, version=version)
    # Its VMs learn how long they may run.
    has_vms = job.state in (JobState.PREPARING, JobState.RUNNING)
    return Change(noted, effects=PROVISION if has_vms else ())


def _first_placement(job: Job, action: BeginPreparing) -> Placement:
    """Return where VMs are requested first, and which candidates follow."""
    placement = replace(job.placement, next_at=action.next_at)
    if not action.order:
        return placement
    return replace(placement, zone_index=action.order[0], remaining=action.order[1:])


def _placed(job: Job, zone_index: int) -> Placement:
    """Return the placement in this zone.

    The zone that the gang leaves may still have VMs, and run programs, unless no round has begun.
    """
    if zone_index == job.placement.zone_index:
        return job.placement
    may_run = not job.plan.is_synchronous or job.round.began_at is not None
    zone = job.plan.where.zones[zone_index]
    known = (LeftZone(job.zone, may_run=may_run), *job.placement.left)
    left = tuple(left for left in known if left.zone != zone)
    return replace(job.placement, zone_index=zone_index, left=left)


def _succeed(state: State, action: SucceedJob, now: datetime) -> Change:
    """End the job with its primary. The other replicas are not written."""
    primary = find_replica(state, action.replica)
    measurement = action.measurement or primary.measurement
    # The primary may complete before the last peer is ready. The job then started when the primary
    # did.
    started_at = state.job.started_at or primary.ready_at or now
    noted = replace(state.job, notes=action.notes, last_progress=action.progress)
    ended = move_job(
        _with_trial_result(noted, measurement),
        JobState.SUCCEEDED,
        started_at=started_at,
        ended_at=now,
    )
    done = move_replica(primary, ReplicaState.COMPLETED, done_at=now, measurement=measurement)
    return Change(ended, (done,), PROVISION)


def _with_trial_result(job: Job, measurement: Measurement | None) -> Job:
    if job.trial_of is None:
        return job
    return replace(job, trial_of=replace(job.trial_of, measurement=measurement))


def _rerun(state: State, action: RerunJob, now: datetime) -> Change:
    """Begin the next attempt, in the same zone or, with `zone_index`, in another one."""
    _require_whole_attempt(state)
    job = state.job
    budgets = job.budgets
    if action.charge is Budget.RERUNS:
        budgets = replace(budgets, reruns_used=budgets.reruns_used + 1)
    attempt = job.attempt + 1
    only_optional = job.placement.only_optional and action.next_at is None
    placement = replace(
        job.placement, since=None, next_at=action.next_at, only_optional=only_optional, problem=""
    )
    if action.zone_index is not None:
        placement = replace(
            _placed(job, action.zone_index),
            round=placement.round + 1,
            since=job.placement.since or now,
            next_at=action.next_at,
            only_optional=False,
            problem="",
            blocked_since=None,
            remaining=action.remaining,
        )
    rerun = replace(
        job,
        attempt=attempt,
        budgets=budgets,
        placement=placement,
        round=_first_round(job, action, now),
        version=job.version + 1,
    )
    # Their versions make the commit fail if an event has changed one of them meanwhile.
    previous = tuple(with_next_version(replica) for replica in state.replicas)
    moved_to = (
        None
        if placement.zone_index == job.placement.zone_index
        else _next_generation(state.replicas)
    )
    following = tuple(
        _next_attempt(replica, attempt, action, moved_to, now) for replica in state.replicas
    )
    return Change(rerun, (*previous, *following), PROVISION)


def _first_round(job: Job, action: RerunJob, now: datetime) -> Round:
    """Return the round with which the next attempt begins: held, so that no program of this attempt
    joins it.
    """
    if not job.plan.is_synchronous:
        return job.round
    quick_failures = job.round.quick_failures + 1 if action.quick_failure else 0
    return Round(
        number=1,
        is_held=True,
        began_at=job.round.began_at,
        ordered_at=now,
        quick_failures=quick_failures,
        bug=action.bug,
        failing=action.failing,
    )


def _next_attempt(
    replica: Replica, attempt: int, action: RerunJob, moved_to: int | None, now: datetime
) -> Replica:
    """Return the replica of the next attempt.

    It keeps its VM, unless the replica had completed (its VM was deleted), the VM is lost, or the
    gang moves to another zone. `moved_to` is the VM generation in that zone.
    """
    is_lost = replica.key == action.lost
    is_vm_gone = replica.state is ReplicaState.COMPLETED or is_lost
    is_vm_taken = is_lost and action.is_vm_taken
    vm_generation = replica.vm_generation
    if moved_to is not None:
        vm_generation = moved_to
    elif is_vm_gone:
        vm_generation += 1
    keeps_vm = moved_to is None and not is_vm_gone
    kept_vm = {field: getattr(replica, field) for field in NO_VM}
    return Replica(
        attempt,
        replica.replica_id,
        vm_generation=vm_generation,
        **(kept_vm if keeps_vm else NO_VM),
        quick_failures=replica.quick_failures + 1 if replica.key == action.quick_failure else 0,
        bug=action.bug if replica.key == action.reporter else None,
        failing=action.failing if replica.key == action.reporter else None,
        vms_lost=replica.vms_lost + 1 if is_vm_taken else replica.vms_lost,
        wasted=action.wasted if is_lost else replica.wasted,
        ordered_at=now,
    )


def _request_vms(state: State, action: ContinueProvisioning, now: datetime) -> tuple[Replica, ...]:
    """Return the replicas that change: the one whose machine was wasted, if one was.

    A move to another zone changes no replica. It raises the floor of VM generations instead: VMs of
    a lower generation are outdated, also those that a late insert creates in the zone before.
    """
    if action.replacement is None:
        return ()
    wasted = find_replica(state, action.replacement.replica)
    return (replace_vm(state.job.plan, wasted, action.replacement, now),)


def _next_generation(replicas: Sequence[Replica]) -> int:
    """Return a VM generation that none of the replicas has had."""
    return max((replica.vm_generation for replica in replicas), default=0) + 1


def _require_whole_attempt(state: State) -> None:
    if not state.whole:
        raise IllegalTransitionError("a change of all replicas needs the whole attempt")
