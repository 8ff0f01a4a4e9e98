"""How the actions on one replica change the stored state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from shared.core.actions import (
    Budget,
    HoldReplica,
    MarkHostReady,
    MarkReady,
    ReactivateReplica,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    ReplicaAction,
    RestartReplica,
)
from shared.core.model.job import Job, State
from shared.core.model.replica import Replica, ReplicaState
from shared.core.transitions.change import PROVISION, Change, find_replica, move_replica, order_incarnation


def change_replica(state: State, action: ReplicaAction, now: datetime) -> Change:
    """Return the change that the action makes to its replica, and to the peers that it refunds."""
    replica = find_replica(state, action.replica)
    match action:
        case MarkReady():
            ready = move_replica(
                replica, ReplicaState.RUNNING, ready_at=now, instance_id=action.instance_id, startup_timeouts=0
            )
            return Change(replicas=(ready,), effects=PROVISION if replica.state.is_down else ())
        case MarkHostReady():
            return Change(replicas=(_with_host_ready(replica, action.host),))
        case RecordHostDone():
            return Change(replicas=(_with_host_done(with_measurement(replica, action), action.host),))
        case RecordCompletion():
            # The report that it was ready may arrive later.
            done = move_replica(replica, ReplicaState.COMPLETED, ready_at=replica.ready_at or now, done_at=now)
            return Change(replicas=(done,), effects=PROVISION)
        case ReactivateReplica():
            return Change(replicas=(_reactivate(replica, now),), effects=PROVISION)
        case RestartReplica():
            restarted = _restart(with_measurement(replica, action), action, now)
            return Change(replicas=(restarted, *_refund(state, action.refunded, now)), effects=PROVISION)
        case HoldReplica():
            held = order_incarnation(
                with_measurement(replica, action),
                ReplicaState.HELD,
                now,
                collateral=replica.collateral + 1,
                forgiven_at=now,
            )
            return Change(replicas=(held,), effects=PROVISION)
        case ReplaceVm():
            job = _refund_rerun(state.job) if action.refunds_rerun else None
            replaced = _replace_vm(with_measurement(replica, action), action, now)
            return Change(job, (replaced, *_refund(state, action.refunded, now)), PROVISION)
        case _:
            assert_never(action)


def with_measurement(replica: Replica, action: RecordHostDone | RestartReplica | HoldReplica | ReplaceVm) -> Replica:
    """Return the replica with the measurement that its exit reported; without one, an earlier measurement stays."""
    return replace(replica, measurement=action.measurement or replica.measurement)


def _restart(replica: Replica, action: RestartReplica, now: datetime) -> Replica:
    is_charged = action.charge is Budget.RESTARTS
    return order_incarnation(
        replica,
        ReplicaState.RESTARTING,
        now,
        restarts_used=replica.restarts_used + is_charged,
        last_exit=action.last_exit,
        lost_at=now,
        charged_at=now if is_charged else replica.charged_at,
        startup_timeouts=0,
    )


def _replace_vm(replica: Replica, action: ReplaceVm, now: datetime) -> Replica:
    return order_incarnation(
        replica,
        ReplicaState.REPLACING,
        now,
        vm_generation=replica.vm_generation + 1,
        instance_id=None,
        replaced=replica.replaced + 1,
        startup_timeouts=replica.startup_timeouts + action.is_startup_timeout,
        lost_at=now,
    )


def _reactivate(replica: Replica, now: datetime) -> Replica:
    """Let the replica wait for a VM as at the start. It is not a loss, so it explains no peer's exit."""
    return order_incarnation(
        replica,
        ReplicaState.WAITING,
        now,
        vm_generation=replica.vm_generation + 1,
        instance_id=None,
        done_at=None,
    )


def _refund(state: State, keys: tuple[str, ...], now: datetime) -> tuple[Replica, ...]:
    """Return these replicas with their last charged restart counted as collateral, and unknown to rule 8."""
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
        for replica in (find_replica(state, key) for key in keys)
    )


def _refund_rerun(job: Job) -> Job:
    budgets = replace(job.budgets, reruns_used=job.budgets.reruns_used - 1)
    return replace(job, budgets=budgets, last_rerun=None, version=job.version + 1)


def _with_host_ready(replica: Replica, host: int) -> Replica:
    return replace(replica, hosts_ready=(*replica.hosts_ready, host), version=replica.version + 1)


def _with_host_done(replica: Replica, host: int) -> Replica:
    return replace(replica, hosts_done=(*replica.hosts_done, host), version=replica.version + 1)
