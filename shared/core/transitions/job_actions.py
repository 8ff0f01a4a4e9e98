"""How the actions on a job as a whole change the stored state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from shared.core.actions import (
    BeginPreparing,
    BeginRunning,
    Budget,
    CancelJob,
    CompleteTuning,
    ContinueProvisioning,
    DeleteJob,
    FailJob,
    JobAction,
    RerunJob,
    SetLabels,
    SucceedJob,
)
from shared.core.model.job import Budgets, Job, JobState, LastRerun, Placement, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.tuning import Measurement
from shared.core.transitions.change import (
    PROVISION,
    Change,
    IllegalTransitionError,
    find_replica,
    move_job,
    move_replica,
    with_next_version,
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
            return Change(move_job(job, JobState.PREPARING))
        case BeginRunning():
            return Change(move_job(job, JobState.RUNNING, started_at=now))
        case ContinueProvisioning():
            placement = Placement(action.zone_index, action.round, action.since, action.next_at)
            return Change(replace(job, placement=placement, version=job.version + 1), effects=PROVISION)
        case RerunJob():
            return _rerun(state, action, now)
        case SucceedJob():
            return _succeed(state, action, now)
        case FailJob():
            ended = move_job(job, JobState.FAILED, ended_at=now, error_message=action.message)
            replicas = (with_next_version(find_replica(state, action.replica)),) if action.replica else ()
            return Change(ended, replicas, PROVISION)
        case CancelJob():
            ended = move_job(job, JobState.CANCELLED, ended_at=now, error_message=action.message)
            return Change(ended, effects=PROVISION)
        case SetLabels():
            return Change(
                replace(job, labels=action.labels, labels_version=job.labels_version + 1, version=job.version + 1)
            )
        case DeleteJob():
            return Change(replace(job, deleted_at=now, version=job.version + 1))
        case CompleteTuning():
            return Change(move_job(job, JobState.SUCCEEDED, ended_at=now), effects=PROVISION)
        case _:
            assert_never(action)


def _succeed(state: State, action: SucceedJob, now: datetime) -> Change:
    primary = find_replica(state, action.replica)
    measurement = action.measurement or primary.measurement
    # The primary may complete before the last peer is ready. The job then started when the primary did.
    started_at = state.job.started_at or primary.ready_at or now
    ended = move_job(
        _with_trial_result(state.job, measurement), JobState.SUCCEEDED, started_at=started_at, ended_at=now
    )
    done = move_replica(primary, ReplicaState.COMPLETED, done_at=now, measurement=measurement)
    return Change(ended, (done,), PROVISION)


def _with_trial_result(job: Job, measurement: Measurement | None) -> Job:
    if job.trial_of is None:
        return job
    return replace(job, trial_of=replace(job.trial_of, measurement=measurement))


def _rerun(state: State, action: RerunJob, now: datetime) -> Change:
    if not state.whole:
        raise IllegalTransitionError("a rerun needs the whole attempt")
    job = state.job
    budgets = Budgets(
        reruns_used=job.budgets.reruns_used + (action.charge is Budget.RERUNS),
        internal_used=job.budgets.internal_used + (action.charge is Budget.INTERNAL),
    )
    attempt = job.attempt + 1
    placement = replace(job.placement, since=None, next_at=None)
    if action.zone_index is not None:
        placement = Placement(action.zone_index, placement.round + 1, since=job.placement.since or now)
    rerun = replace(
        job,
        attempt=attempt,
        budgets=budgets,
        placement=placement,
        last_rerun=LastRerun(now, action.blame) if action.charge is Budget.RERUNS else None,
        version=job.version + 1,
    )
    previous = tuple(with_next_version(replica) for replica in state.replicas)
    following = tuple(_next_attempt(replica, attempt, action, now) for replica in state.replicas)
    return Change(rerun, (*previous, *following), PROVISION)


def _next_attempt(replica: Replica, attempt: int, action: RerunJob, now: datetime) -> Replica:
    """Return the replica of the next attempt.

    It keeps its VM, unless the replica had completed (its VM was deleted), the VM is lost, or the gang moves to another
    zone.
    """
    is_vm_gone = replica.state is ReplicaState.COMPLETED or replica.key == action.lost
    keeps_vm = not is_vm_gone and action.zone_index is None
    return Replica(
        attempt,
        replica.replica_id,
        vm_generation=replica.vm_generation + is_vm_gone,
        instance_id=replica.instance_id if keeps_vm else None,
        ordered_at=now,
    )
