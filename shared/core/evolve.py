"""The only place where state changes: state, decision and one `now` in; the documents to be written out.

Pure and deterministic, so that folding a job's ledger through it rebuilds the stored state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from shared.core.decisions import (
    AcceptJob,
    BeginPreparing,
    BeginRunning,
    BeginTrial,
    Budget,
    CancelJob,
    CompleteStudy,
    ContinueProvisioning,
    Decision,
    DeleteJob,
    EndTrial,
    FailJob,
    HoldReplica,
    Ignore,
    MarkHostReady,
    MarkReady,
    MarkTrialRunning,
    ReactivateReplica,
    Reason,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    SetLabels,
    SucceedJob,
)
from shared.core.model.job import Budgets, Job, JobState, LastRerun, Placement, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.model.transitions import JOB_EDGES, REPLICA_EDGES
from shared.core.reconcile.trial_jobs import with_trial


class IllegalTransitionError(Exception):
    """A decision asked for an edge that the tables do not have: a bug in the judge."""


@dataclass(frozen=True, slots=True)
class Change:
    """The documents a decision rewrites or creates. `provision`: what there is may no longer equal what is desired: a
    job's machines, a tuning job's trials."""

    job: Job | None = None
    replicas: tuple[Replica, ...] = ()
    provision: bool = False


def evolve(state: State | None, decision: Decision, now: datetime) -> Change:
    """`state` is None only for AcceptJob. RerunJob needs the whole attempt loaded."""
    if isinstance(decision, AcceptJob):
        replica_ids = () if decision.job.tuning else decision.job.plan.replica_ids
        first = tuple(Replica(decision.job.attempt, replica_id, ordered_at=now) for replica_id in replica_ids)
        return Change(decision.job, first, provision=True)
    if state is None:
        raise IllegalTransitionError(f"{decision.kind} without a job")
    match decision:
        case Ignore():
            return Change()
        case BeginPreparing():
            return Change(_to(state.job, JobState.PREPARING))
        case BeginRunning():
            return Change(_to(state.job, JobState.RUNNING, started_at=now))
        case MarkReady():
            replica = _named(state, decision.replica)
            ready = _move(
                replica, ReplicaState.RUNNING, ready_at=now, instance_id=decision.instance_id, startup_timeouts=0
            )
            return Change(replicas=(ready,), provision=replica.state.is_down)
        case MarkHostReady():
            replica = _named(state, decision.replica)
            return Change(replicas=(_with_host(replica, hosts_ready=(*replica.hosts_ready, decision.host)),))
        case RecordHostDone():
            replica = _reporting(state, decision)
            return Change(replicas=(_with_host(replica, hosts_done=(*replica.hosts_done, decision.host)),))
        case RecordCompletion():
            replica = _named(state, decision.replica)
            # Its vm-ready may come after: who is done has been up.
            done = _move(replica, ReplicaState.COMPLETED, ready_at=replica.ready_at or now, done_at=now)
            return Change(replicas=(done,), provision=True)
        case ReactivateReplica():
            return Change(replicas=(_called_back(_named(state, decision.replica), now),), provision=True)
        case RestartReplica():
            restarted = _restarted(_reporting(state, decision), decision, now)
            return Change(replicas=(restarted, *_refunds(state, decision.refunded, now)), provision=True)
        case HoldReplica():
            replica = _reporting(state, decision)
            held = _next_incarnation(
                replica, ReplicaState.HELD, now, collateral=replica.collateral + 1, forgiven_at=now
            )
            return Change(replicas=(held,), provision=True)
        case ReplaceVm():
            refunds = _refunds(state, decision.refunded, now)
            job = _without_last_rerun(state.job) if decision.refunds_rerun else None
            return Change(job, (_replaced(_reporting(state, decision), decision, now), *refunds), provision=True)
        case RerunJob():
            return _rerun(state, decision, now)
        case ContinueProvisioning():
            moved = Placement(decision.zone_index, decision.round, decision.since, decision.next_at)
            return Change(replace(state.job, placement=moved, version=state.job.version + 1), provision=True)
        case SucceedJob():
            primary = _reporting(state, decision)
            # It may be done before its last peer is up: then the job started when the primary did.
            started_at = state.job.started_at or primary.ready_at or now
            ended = _to(_measured(state.job, primary), JobState.SUCCEEDED, started_at=started_at, ended_at=now)
            done = _move(primary, ReplicaState.COMPLETED, done_at=now)
            return Change(ended, (done,), provision=True)
        case FailJob():
            ended = _to(state.job, JobState.FAILED, ended_at=now, error_message=decision.message)
            # Written as it is: had its incarnation been replaced meanwhile, the exit must be judged again, as a stale one.
            whose = (_named(state, decision.replica),) if decision.replica else ()
            closed = tuple(replace(replica, version=replica.version + 1) for replica in whose)
            return Change(ended, closed, provision=True)
        case CancelJob():
            return Change(
                _to(state.job, JobState.CANCELLED, ended_at=now, error_message=decision.message), provision=True
            )
        case SetLabels():
            job = state.job
            changed = replace(
                job, labels=decision.labels, labels_version=job.labels_version + 1, version=job.version + 1
            )
            return Change(changed)
        case DeleteJob():
            return Change(replace(state.job, deleted_at=now, version=state.job.version + 1))
        case BeginTrial() | MarkTrialRunning() | EndTrial():
            return Change(replace(state.job, tuning=with_trial(state.job, decision), version=state.job.version + 1))
        case CompleteStudy():
            return Change(_to(state.job, JobState.SUCCEEDED, ended_at=now), provision=True)
        case _:
            assert_never(decision)


def apply(state: State, change: Change) -> State:
    """The state after the change, as far as it was loaded. A new attempt's replicas take the old ones' place."""
    job = change.job or state.job
    written = {replica.key: replica for replica in change.replicas}
    kept = [written.pop(replica.key, replica) for replica in state.replicas]
    replicas = tuple(each for each in (*kept, *written.values()) if each.attempt == job.attempt)
    return replace(state, job=job, replicas=replicas)


def _reporting(
    state: State, decision: RecordHostDone | RestartReplica | HoldReplica | ReplaceVm | SucceedJob
) -> Replica:
    """The replica, with what its exit told of its training; else what an earlier one did stands."""
    replica = _named(state, decision.replica)
    return replace(replica, measurement=decision.measurement or replica.measurement)


def _measured(job: Job, primary: Replica) -> Job:
    if job.trial_of is None:
        return job
    return replace(job, trial_of=replace(job.trial_of, measurement=primary.measurement))


def _restarted(replica: Replica, decision: RestartReplica, now: datetime) -> Replica:
    charged = decision.charge is Budget.RESTARTS
    return _next_incarnation(
        replica,
        ReplicaState.RESTARTING,
        now,
        restarts_used=replica.restarts_used + (1 if charged else 0),
        last_exit=decision.last_exit,
        lost_at=now,
        charged_at=now if charged else replica.charged_at,
        startup_timeouts=0,
    )


def _replaced(replica: Replica, decision: ReplaceVm, now: datetime) -> Replica:
    return _next_incarnation(
        replica,
        ReplicaState.REPLACING,
        now,
        vm_generation=replica.vm_generation + 1,
        instance_id=None,
        replaced=replica.replaced + 1,
        startup_timeouts=replica.startup_timeouts + (decision.reason is Reason.STARTUP_TIMEOUT),
        lost_at=now,
    )


def _without_last_rerun(job: Job) -> Job:
    budgets = replace(job.budgets, reruns_used=job.budgets.reruns_used - 1)
    return replace(job, budgets=budgets, last_rerun=None, version=job.version + 1)


def _called_back(replica: Replica, now: datetime) -> Replica:
    """It waits for its VM like at the start, and is no loss: what happens to its peers meanwhile is not its fault."""
    another = replica.vm_generation + 1
    return _next_incarnation(replica, ReplicaState.WAITING, now, vm_generation=another, instance_id=None, done_at=None)


def _refunds(state: State, keys: tuple[str, ...], now: datetime) -> tuple[Replica, ...]:
    """Their last charge is given back: it counts as collateral, and rule 8 never saw it."""
    return tuple(
        replace(
            replica,
            restarts_used=replica.restarts_used - 1,
            collateral=replica.collateral + 1,
            last_exit=None,
            charged_at=None,
            forgiven_at=now,
            version=replica.version + 1,
        )
        for replica in (_named(state, key) for key in keys)
    )


def _rerun(state: State, decision: RerunJob, now: datetime) -> Change:
    if not state.whole:
        raise IllegalTransitionError("a rerun needs the whole attempt")
    job = state.job
    used = job.budgets
    budgets = Budgets(
        reruns_used=used.reruns_used + (decision.charge is Budget.RERUNS),
        internal_used=used.internal_used + (decision.charge is Budget.INTERNAL),
    )
    attempt = job.attempt + 1
    again = tuple(_anew(replica, attempt, decision, now) for replica in state.replicas)
    placement = replace(job.placement, since=None, next_at=None)
    if decision.zone_index is not None:
        placement = Placement(decision.zone_index, placement.round + 1, since=job.placement.since or now)
    last = LastRerun(now, decision.blame) if decision.charge is Budget.RERUNS else None
    rerun = replace(
        job, attempt=attempt, budgets=budgets, placement=placement, last_rerun=last, version=job.version + 1
    )
    # Written as they are: so that a commit on one of them that this rerun has not seen makes it judge again.
    closed = tuple(replace(replica, version=replica.version + 1) for replica in state.replicas)
    return Change(rerun, (*closed, *again), provision=True)


def _anew(replica: Replica, attempt: int, decision: RerunJob, now: datetime) -> Replica:
    """In the next attempt. A completed replica's VM was given back, a lost one is gone, and none is taken to another
    zone."""
    is_gone = replica.state is ReplicaState.COMPLETED or replica.key == decision.lost
    is_there = not is_gone and decision.zone_index is None
    return Replica(
        attempt,
        replica.replica_id,
        vm_generation=replica.vm_generation + is_gone,
        instance_id=replica.instance_id if is_there else None,
        ordered_at=now,
    )


def _with_host(
    replica: Replica, *, hosts_ready: tuple[int, ...] | None = None, hosts_done: tuple[int, ...] | None = None
) -> Replica:
    return replace(
        replica,
        hosts_ready=replica.hosts_ready if hosts_ready is None else hosts_ready,
        hosts_done=replica.hosts_done if hosts_done is None else hosts_done,
        version=replica.version + 1,
    )


def _named(state: State, key: str) -> Replica:
    for replica in state.replicas:
        if replica.key == key:
            return replica
    raise IllegalTransitionError(f"decision on replica {key}, which was not loaded")


def _to(
    job: Job,
    target: JobState,
    *,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    error_message: str | None = None,
) -> Job:
    if (job.state, target) not in JOB_EDGES:
        raise IllegalTransitionError(f"job {job.state} -> {target}")
    return replace(
        job,
        state=target,
        started_at=started_at or job.started_at,
        ended_at=ended_at or job.ended_at,
        error_message=error_message or job.error_message,
        version=job.version + 1,
    )


def _next_incarnation(replica: Replica, target: ReplicaState, now: datetime, **changes: object) -> Replica:
    nth = replica.incarnation + 1
    return _move(replica, target, incarnation=nth, ordered_at=now, hosts_ready=(), hosts_done=(), **changes)


def _move(replica: Replica, target: ReplicaState, **changes: object) -> Replica:
    if (replica.state, target) not in REPLICA_EDGES:
        raise IllegalTransitionError(f"replica {replica.key} {replica.state} -> {target}")
    return replace(replica, state=target, version=replica.version + 1, **changes)  # type: ignore[arg-type]
