"""How the actions on one replica change the stored state.

An incarnation is one execution of a replica's program. The replicas of a synchronous job are its
members: they start together, in rounds, and a round is held until all of them have reported. Any
other replica is alone, and an action orders its next incarnation. A host is one machine of a TPU
slice, which is one replica.

A change of a replica depends on the replica's document, the action and the plan, which never
changes, and on nothing else of the job: a commit that writes only the job does not conflict with
it, so that the ledger may hold the two in the other order than they were judged in.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from trainmaster.core.actions import (
    BeginRound,
    Budget,
    MarkHostReady,
    MarkReady,
    RecordCompletion,
    RecordHostDone,
    ReplaceVm,
    ReplicaAction,
    RestartReplica,
)
from trainmaster.core.model.floor import NO_VM
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import is_member
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica import HostVm, Replica, ReplicaState
from trainmaster.core.transitions.change import PROVISION, Change, find_replica, move_replica


def change_replica(state: State, action: ReplicaAction, now: datetime) -> Change:
    """Return the change that the action makes to its replica."""
    replica = find_replica(state, action.replica)
    plan = state.job.plan
    match action:
        case MarkReady():
            is_alone = not is_member(plan, replica.replica_id)
            is_first_report = replica.vm_since is None
            # The program starts with a directive, which `provision` can write now that the VM is
            # known. A member waits for its round instead.
            effects = PROVISION if is_alone and is_first_report else ()
            return Change(replicas=(_mark_ready(replica, action, now),), effects=effects)
        case MarkHostReady():
            return Change(replicas=(_with_host_ready(replica, action),))
        case RecordHostDone():
            return Change(replicas=(_with_host_done(replica, action),))
        case RecordCompletion():
            done = move_replica(
                replica,
                ReplicaState.COMPLETED,
                ready_at=_ready_at(replica, now),
                done_at=action.done_at,
                instance_id=None if action.is_vm_lost else replica.instance_id,
            )
            return Change(replicas=(done,), effects=PROVISION)
        case RestartReplica():
            return Change(replicas=(_restart(plan, replica, action, now),), effects=PROVISION)
        case ReplaceVm():
            job = job_after_loss(state.job, replica, action)
            replaced = replace_vm(plan, replica, action, now)
            return Change(job=job, replicas=(replaced,), effects=PROVISION)
        case _:
            assert_never(action)


def _ready_at(replica: Replica, now: datetime) -> datetime:
    """Return when a replica of which a program has ended became ready: now, if the report of that
    has not arrived.
    """
    return replica.ready_at or now


def _mark_ready(replica: Replica, action: MarkReady, now: datetime) -> Replica:
    return move_replica(
        replica,
        ReplicaState.RUNNING,
        ready_at=now,
        instance_id=action.instance_id,
        host_vms=_host_vms_with(replica, action.host_vm),
        vm_since=action.vm_since,
        measurement=action.measurement or replica.measurement,
        **_next_round(replica, action),
    )


def _next_round(replica: Replica, action: MarkReady | MarkHostReady) -> dict[str, Any]:
    """Return the changes of a replica that reports, except for those of its VM.

    A member's first report about the held round clears which hosts of its TPU slice were ready in
    the round before. The reports of the slice's other hosts follow: one host whose program ended
    is enough for `has_ended`, and `left_peers` needs all hosts.
    """
    is_next = action.round is not None and action.round != replica.incarnation
    if not is_next:
        return {
            "has_ended": action.has_ended or replica.has_ended,
            "left_peers": action.left_peers and replica.left_peers,
        }
    return {
        "incarnation": action.round,
        "hosts_ready": (),
        "hosts_done": (),
        "has_ended": action.has_ended,
        "left_peers": action.left_peers,
        "round_reported": action.has_kept_vm,
    }


def _with_measurement(
    replica: Replica, action: RecordHostDone | RestartReplica | ReplaceVm
) -> Replica:
    """Return the replica with the measurement that its exit reported; without one, an earlier
    measurement stays.
    """
    return replace(replica, measurement=action.measurement or replica.measurement)


def _with_host_done(replica: Replica, action: RecordHostDone) -> Replica:
    return replace(
        _with_measurement(replica, action),
        hosts_done=(*replica.hosts_done, action.host),
        version=replica.version + 1,
    )


def _restart(plan: Plan, replica: Replica, action: RestartReplica, now: datetime) -> Replica:
    return _order_incarnation(
        plan,
        charged(plan, _with_measurement(replica, action), action, now),
        ReplicaState.RESTARTING,
        now,
        ready_at=_ready_at(replica, now),
        quick_failures=replica.quick_failures + 1 if action.is_quick_failure else 0,
        bug=action.bug,
        failing=action.failing,
    )


def charged(
    plan: Plan, replica: Replica, action: RestartReplica | BeginRound | ReplaceVm, now: datetime
) -> Replica:
    """Return the replica with the restart that the action charges to it.

    A restart may also excuse earlier ones: what was learned since shows that the replica did not
    cause them (`RestartReplica.excused`).
    """
    restarts = replica.restarts
    if action.charge is Budget.RESTARTS:
        counted = plan.restarts.exit_policy.counted(restarts, now)
        excused = action.excused if isinstance(action, RestartReplica) else ()
        restarts = (*(at for at in counted if at not in excused), now)
    return replace(replica, restarts=restarts)


def replace_vm(plan: Plan, replica: Replica, action: ReplaceVm, now: datetime) -> Replica:
    """Return the replica with its next incarnation ordered on another VM."""
    return _order_incarnation(
        plan,
        charged(plan, _with_measurement(replica, action), action, now),
        ReplicaState.REPLACING,
        now,
        # nothing is known of the next VM: no id, no report, no host
        **NO_VM | {"next_at": None if _waits_with_gang(plan, replica) else action.next_at},
        vm_generation=replica.vm_generation + 1,
        ready_at=_ready_at(replica, now) if action.has_run else replica.ready_at,
        quick_failures=0,
        bug=None,
        failing=None,
        replaced=replica.replaced + 1,
        vms_lost=replica.vms_lost + 1 if action.is_vm_taken else replica.vms_lost,
        wasted=action.wasted,
    )


def _order_incarnation(
    plan: Plan, replica: Replica, target: ReplicaState, now: datetime, **changes: Any
) -> Replica:
    """Return the replica with its next incarnation ordered.

    For a member, the incarnation is unchanged: its next report sets it to the number of the round.
    """
    incarnation = replica.incarnation
    if not is_member(plan, replica.replica_id):
        incarnation += 1
    fields = {
        "incarnation": incarnation,
        "ordered_at": now,
        "hosts_ready": (),
        "hosts_done": (),
        **changes,
    }
    return move_replica(replica, target, **fields)


def _waits_with_gang(plan: Plan, replica: Replica) -> bool:
    """Whether a pause before the replica's next VM is one for all VMs: its peers wait for it."""
    return is_member(plan, replica.replica_id)


def job_after_loss(job: Job, replica: Replica, action: ReplaceVm) -> Job | None:
    """Return the job after the loss of a VM; None: it does not change.

    With a pause before the next VM of a member, the search for capacity begins again: its next pass
    has another number, and what the last one waited for no longer counts.
    """
    if action.next_at is None or not _waits_with_gang(job.plan, replica):
        return None
    old = job.placement
    placement = replace(
        old,
        round=old.round + 1,
        next_at=action.next_at,
        only_optional=False,
        problem="",
        blocked_since=None,
    )
    return replace(job, placement=placement, version=job.version + 1)


def _with_host_ready(replica: Replica, action: MarkHostReady) -> Replica:
    """Return the replica of a TPU slice with one more ready host.

    It is not ready before all hosts are, so a replica that was RUNNING is RESTARTING again. Its
    instance id stays that of the first host that reported: it identifies the node.
    """
    replica = replace(replica, **_next_round(replica, action))
    return replace(
        replica,
        state=ReplicaState.RESTARTING if replica.state is ReplicaState.RUNNING else replica.state,
        version=replica.version + 1,
        hosts_ready=(*replica.hosts_ready, action.host),
        host_vms=_host_vms_with(replica, action.host_vm),
        instance_id=replica.instance_id or action.instance_id or None,
    )


def _host_vms_with(replica: Replica, host_vm: HostVm | None) -> tuple[HostVm, ...]:
    """Return the machines of the slice's hosts with one more. The first machine of a host stays."""
    if host_vm is None or replica.host_vm(host_vm.host) is not None:
        return replica.host_vms
    return (*replica.host_vms, host_vm)
