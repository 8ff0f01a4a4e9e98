"""How the actions on one replica change the stored state."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final, assert_never

from trainmaster.core.actions import (
    Budget,
    HoldReplica,
    MarkHostReady,
    MarkReady,
    ReactivateReplica,
    RecordCompletion,
    RecordHostDone,
    RefundCharge,
    ReplaceVm,
    ReplicaAction,
    RestartReplica,
)
from trainmaster.core.model.job import Job, Placement, State
from trainmaster.core.model.replica import PAST_KEPT, EndKind, HostVm, PastIncarnation, Replica, ReplicaState
from trainmaster.core.transitions.change import (
    PROVISION,
    Change,
    find_replica,
    move_replica,
    order_incarnation,
    with_return,
)

NO_EARLY_LOSSES: Final = {"early_losses": 0, "early_losses_in_zone": 0}
"""Fields that end a series of early losses."""


def change_replica(state: State, action: ReplicaAction, now: datetime) -> Change:
    """Return the change that the action makes to its replica."""
    replica = find_replica(state, action.replica)
    match action:
        case MarkReady():
            ready = move_replica(
                replica,
                ReplicaState.RUNNING,
                ready_at=now,
                started_at=action.started_at,
                past=with_return(replica.past, action.started_at),
                instance_id=action.instance_id,
                host_vms=_host_vms_with(replica, action.host_vm),
                startup_timeouts=0,
                vm_since=action.vm_since,
                **({} if action.vm_since else NO_EARLY_LOSSES),
            )
            return Change(replicas=(ready,), effects=PROVISION if replica.state.is_down else ())
        case MarkHostReady():
            return Change(replicas=(_with_host_ready(replica, action),))
        case RecordHostDone():
            return Change(replicas=(_with_host_done(with_measurement(replica, action), action.host),))
        case RecordCompletion():
            # The report that it was ready may arrive later.
            done = move_replica(
                replica, ReplicaState.COMPLETED, ready_at=replica.ready_at or now, done_at=action.done_at
            )
            return Change(replicas=(done,), effects=PROVISION)
        case ReactivateReplica():
            return Change(replicas=(_reactivate(replica, now),), effects=PROVISION)
        case RestartReplica():
            restarted = _restart(with_measurement(replica, action), action, now)
            return Change(replicas=(restarted,), effects=PROVISION)
        case HoldReplica():
            held = order_incarnation(
                with_measurement(replica, action),
                ReplicaState.HELD,
                now,
                collateral=replica.collateral + 1,
                instance_id=action.instance_id or replica.instance_id,
                quick_failures=0,
                **({} if replica.vm_since else NO_EARLY_LOSSES),
            )
            return Change(replicas=(held,), effects=PROVISION)
        case ReplaceVm():
            replaced = replace_vm(
                with_measurement(replica, action),
                action.ended,
                now,
                is_vm_taken=action.is_vm_taken,
                is_early=action.is_early,
                is_startup_timeout=action.is_startup_timeout,
            )
            return Change(_job_after_loss(state.job, action), (replaced,), PROVISION)
        case RefundCharge():
            return Change(replicas=(_refund(replica, action.incarnation),))
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
        quick_failures=replica.quick_failures + 1 if action.is_quick_failure else 0,
        past=with_past(replica, action.ended),
        lost_at=now,
        instance_id=action.instance_id or replica.instance_id,
        startup_timeouts=0,
        **({} if replica.vm_since else NO_EARLY_LOSSES),
    )


def replace_vm(
    replica: Replica,
    ended: PastIncarnation,
    now: datetime,
    *,
    is_vm_taken: bool,
    is_early: bool = False,
    is_startup_timeout: bool = False,
) -> Replica:
    """Return the replica with its next incarnation ordered on another VM."""
    ends_series = replica.vm_since is not None and is_vm_taken and not is_early
    return order_incarnation(
        replica,
        ReplicaState.REPLACING,
        now,
        past=with_past(replica, ended),
        vm_generation=replica.vm_generation + 1,
        instance_id=None,
        host_vms=(),
        quick_failures=0,
        replaced=replica.replaced + 1,
        vms_lost=replica.vms_lost + is_vm_taken,
        startup_timeouts=replica.startup_timeouts + is_startup_timeout,
        vm_since=None,
        early_losses=0 if ends_series else replica.early_losses + is_early,
        early_losses_in_zone=0 if ends_series else replica.early_losses_in_zone + is_early,
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
        host_vms=(),
        vm_since=None,
        done_at=None,
    )


def with_past(replica: Replica, ended: PastIncarnation) -> tuple[PastIncarnation, ...]:
    """Return the replica's past incarnations with one more."""
    known = with_return(replica.past, ended.started_at or ended.ended_at)
    return (*known, ended)[-PAST_KEPT:]


def _refund(replica: Replica, incarnation: int) -> Replica:
    """Return the replica with the charged restart of this incarnation counted as collateral."""
    is_stall = any(ended.number == incarnation and ended.kind is EndKind.STALL for ended in replica.past)
    past = tuple(replace(ended, is_charged=False) if ended.number == incarnation else ended for ended in replica.past)
    return replace(
        replica,
        restarts_used=replica.restarts_used - (not is_stall),
        quick_failures=max(replica.quick_failures - (not is_stall), 0),
        collateral=replica.collateral + 1,
        past=past,
        version=replica.version + 1,
    )


def _job_after_loss(job: Job, action: ReplaceVm) -> Job | None:
    """Return the job after the loss of a VM; None: it does not change."""
    if not action.refunds_rerun and action.next_at is None:
        return None
    if action.refunds_rerun:
        budgets = replace(job.budgets, reruns_used=job.budgets.reruns_used - 1)
        job = replace(job, budgets=budgets, last_rerun=None)
    if action.next_at is not None:
        old = job.placement
        job = replace(job, placement=Placement(old.zone_index, old.round + 1, old.since, action.next_at))
    return replace(job, version=job.version + 1)


def _with_host_ready(replica: Replica, action: MarkHostReady) -> Replica:
    """Return the replica with one more ready host. The VM generation belongs to the node that reported first."""
    return replace(
        replica,
        hosts_ready=(*replica.hosts_ready, action.host),
        host_vms=_host_vms_with(replica, action.host_vm),
        instance_id=replica.instance_id or action.instance_id or None,
        version=replica.version + 1,
    )


def _host_vms_with(replica: Replica, host_vm: HostVm | None) -> tuple[HostVm, ...]:
    """Return the machines of the slice's hosts with one more. The first machine of a host stays."""
    if host_vm is None or replica.host_vm(host_vm.host) is not None:
        return replica.host_vms
    return (*replica.host_vms, host_vm)


def _with_host_done(replica: Replica, host: int) -> Replica:
    return replace(replica, hosts_done=(*replica.hosts_done, host), version=replica.version + 1)
