"""The only place where state changes: state, verdict and one `now` in; the documents to be written out.

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
    CallBackReplica,
    CancelJob,
    CompleteStudy,
    DeleteJob,
    EndTrial,
    FailJob,
    HoldReplica,
    Ignore,
    MarkHostReady,
    MarkReady,
    MarkTrialRunning,
    Reason,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    SetLabels,
    SucceedJob,
    TryElsewhere,
    Verdict,
)
from shared.core.model.job import Budgets, Job, JobState, LastRerun, Placement, Replica, ReplicaState, State
from shared.core.model.transitions import JOB_EDGES, REPLICA_EDGES
from shared.core.reconcile.trial_jobs import with_trial


class IllegalTransitionError(Exception):
    """A verdict asked for an edge that the tables do not have: a bug in the judge."""


@dataclass(frozen=True, slots=True)
class Change:
    """The documents a verdict rewrites or creates. `provision`: what there is may no longer equal what is wanted: a
    job's machines, a tuning job's trials."""

    job: Job | None = None
    replicas: tuple[Replica, ...] = ()
    provision: bool = False


def evolve(state: State | None, verdict: Verdict, now: datetime) -> Change:
    """`state` is None only for AcceptJob. RerunJob needs the whole attempt loaded."""
    if isinstance(verdict, AcceptJob):
        seats = () if verdict.job.tuning else verdict.job.plan.seats
        first = tuple(Replica(verdict.job.attempt, seat, ordered_at=now) for seat in seats)
        return Change(verdict.job, first, provision=True)
    if state is None:
        raise IllegalTransitionError(f"{verdict.kind} without a job")
    match verdict:
        case Ignore():
            return Change()
        case BeginPreparing():
            return Change(_to(state.job, JobState.PREPARING))
        case BeginRunning():
            return Change(_to(state.job, JobState.RUNNING, started_at=now))
        case MarkReady():
            replica = _named(state, verdict.replica)
            ready = _move(replica, ReplicaState.RUNNING, ready_at=now, instance_id=verdict.instance_id, silent_vms=0)
            return Change(replicas=(ready,), provision=replica.state.is_down)
        case MarkHostReady():
            replica = _named(state, verdict.replica)
            return Change(replicas=(_with_host(replica, hosts_ready=(*replica.hosts_ready, verdict.host)),))
        case RecordHostDone():
            replica = _reporting(state, verdict)
            return Change(replicas=(_with_host(replica, hosts_done=(*replica.hosts_done, verdict.host)),))
        case RecordCompletion():
            replica = _named(state, verdict.replica)
            # Its vm-ready may come after: who is done has been up.
            done = _move(replica, ReplicaState.COMPLETED, ready_at=replica.ready_at or now, done_at=now)
            return Change(replicas=(done,), provision=True)
        case CallBackReplica():
            return Change(replicas=(_called_back(_named(state, verdict.replica), now),), provision=True)
        case RestartReplica():
            restarted = _restarted(_reporting(state, verdict), verdict, now)
            return Change(replicas=(restarted, *_refunds(state, verdict.given_back, now)), provision=True)
        case HoldReplica():
            replica = _reporting(state, verdict)
            held = _next_life(replica, ReplicaState.HELD, now, collateral=replica.collateral + 1, forgiven_at=now)
            return Change(replicas=(held,), provision=True)
        case ReplaceVm():
            refunds = _refunds(state, verdict.given_back, now)
            job = _without_last_rerun(state.job) if verdict.gives_rerun_back else None
            return Change(job, (_replaced(_reporting(state, verdict), verdict, now), *refunds), provision=True)
        case RerunJob():
            return _rerun(state, verdict, now)
        case TryElsewhere():
            moved = Placement(verdict.zone_index, verdict.round, verdict.since, verdict.next_at)
            return Change(replace(state.job, placement=moved, version=state.job.version + 1), provision=True)
        case SucceedJob():
            primary = _reporting(state, verdict)
            # It may be done before its last peer is up: then the job started when the primary did.
            started_at = state.job.started_at or primary.ready_at or now
            ended = _to(_measured(state.job, primary), JobState.SUCCEEDED, started_at=started_at, ended_at=now)
            done = _move(primary, ReplicaState.COMPLETED, done_at=now)
            return Change(ended, (done,), provision=True)
        case FailJob():
            ended = _to(state.job, JobState.FAILED, ended_at=now, error_message=verdict.message)
            # Written as it is: had its life been replaced meanwhile, the exit must be judged again, as a stale one.
            whose = (_named(state, verdict.replica),) if verdict.replica else ()
            closed = tuple(replace(replica, version=replica.version + 1) for replica in whose)
            return Change(ended, closed, provision=True)
        case CancelJob():
            return Change(
                _to(state.job, JobState.CANCELLED, ended_at=now, error_message=verdict.message), provision=True
            )
        case SetLabels():
            job = state.job
            changed = replace(
                job, labels=verdict.labels, labels_version=job.labels_version + 1, version=job.version + 1
            )
            return Change(changed)
        case DeleteJob():
            return Change(replace(state.job, deleted_at=now, version=state.job.version + 1))
        case BeginTrial() | MarkTrialRunning() | EndTrial():
            return Change(replace(state.job, tuning=with_trial(state.job, verdict), version=state.job.version + 1))
        case CompleteStudy():
            return Change(_to(state.job, JobState.SUCCEEDED, ended_at=now), provision=True)
        case _:
            assert_never(verdict)


def apply(state: State, change: Change) -> State:
    """The state after the change, as far as it was loaded. A new attempt's replicas take the old ones' place."""
    job = change.job or state.job
    written = {replica.key: replica for replica in change.replicas}
    kept = [written.pop(replica.key, replica) for replica in state.replicas]
    replicas = tuple(each for each in (*kept, *written.values()) if each.attempt == job.attempt)
    return replace(state, job=job, replicas=replicas)


def _reporting(
    state: State, verdict: RecordHostDone | RestartReplica | HoldReplica | ReplaceVm | SucceedJob
) -> Replica:
    """The replica, with what its exit told of its training; else what an earlier one did stands."""
    replica = _named(state, verdict.replica)
    return replace(replica, measurement=verdict.measurement or replica.measurement)


def _measured(job: Job, primary: Replica) -> Job:
    if job.trial_of is None:
        return job
    return replace(job, trial_of=replace(job.trial_of, measurement=primary.measurement))


def _restarted(replica: Replica, verdict: RestartReplica, now: datetime) -> Replica:
    charged = verdict.charge is Budget.RESTARTS
    return _next_life(
        replica,
        ReplicaState.RESTARTING,
        now,
        restarts_used=replica.restarts_used + (1 if charged else 0),
        last_exit=verdict.last_exit,
        lost_at=now,
        charged_at=now if charged else replica.charged_at,
        silent_vms=0,
    )


def _replaced(replica: Replica, verdict: ReplaceVm, now: datetime) -> Replica:
    return _next_life(
        replica,
        ReplicaState.REPLACING,
        now,
        machine=replica.machine + 1,
        instance_id=None,
        replaced=replica.replaced + 1,
        silent_vms=replica.silent_vms + (verdict.reason is Reason.SILENCE),
        lost_at=now,
    )


def _without_last_rerun(job: Job) -> Job:
    budgets = replace(job.budgets, reruns_used=job.budgets.reruns_used - 1)
    return replace(job, budgets=budgets, last_rerun=None, version=job.version + 1)


def _called_back(replica: Replica, now: datetime) -> Replica:
    """It waits for its VM like at the start, and is no loss: what happens to its peers meanwhile is not its fault."""
    another = replica.machine + 1
    return _next_life(replica, ReplicaState.WAITING, now, machine=another, instance_id=None, done_at=None)


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


def _rerun(state: State, verdict: RerunJob, now: datetime) -> Change:
    if not state.whole:
        raise IllegalTransitionError("a rerun needs the whole attempt")
    job = state.job
    used = job.budgets
    budgets = Budgets(
        reruns_used=used.reruns_used + (verdict.charge is Budget.RERUNS),
        internal_used=used.internal_used + (verdict.charge is Budget.INTERNAL),
    )
    attempt = job.attempt + 1
    again = tuple(_anew(replica, attempt, verdict, now) for replica in state.replicas)
    placement = replace(job.placement, since=None, next_at=None)
    if verdict.zone_index is not None:
        placement = Placement(verdict.zone_index, placement.round + 1, since=job.placement.since or now)
    last = LastRerun(now, verdict.blame) if verdict.charge is Budget.RERUNS else None
    rerun = replace(
        job, attempt=attempt, budgets=budgets, placement=placement, last_rerun=last, version=job.version + 1
    )
    # Written as they are: so that a commit on one of them that this rerun has not seen makes it judge again.
    closed = tuple(replace(replica, version=replica.version + 1) for replica in state.replicas)
    return Change(rerun, (*closed, *again), provision=True)


def _anew(replica: Replica, attempt: int, verdict: RerunJob, now: datetime) -> Replica:
    """In the next attempt. A completed replica's VM was given back, a lost one is gone, and none is taken to another
    zone."""
    is_gone = replica.state is ReplicaState.COMPLETED or replica.key == verdict.lost
    is_there = not is_gone and verdict.zone_index is None
    return Replica(
        attempt,
        replica.seat,
        machine=replica.machine + is_gone,
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
    raise IllegalTransitionError(f"verdict on replica {key}, which was not loaded")


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


def _next_life(replica: Replica, target: ReplicaState, now: datetime, **changes: object) -> Replica:
    nth = replica.incarnation + 1
    return _move(replica, target, incarnation=nth, ordered_at=now, hosts_ready=(), hosts_done=(), **changes)


def _move(replica: Replica, target: ReplicaState, **changes: object) -> Replica:
    if (replica.state, target) not in REPLICA_EDGES:
        raise IllegalTransitionError(f"replica {replica.key} {replica.state} -> {target}")
    return replace(replica, state=target, version=replica.version + 1, **changes)  # type: ignore[arg-type]
