"""Silent agents: running replicas whose agent is gone or hangs with its VM. No event reports such a failure.

An agent writes the time to a guest attribute of its VM every minute. Listings do not show guest attributes, and reading
one is a call, so only a reconciliation that the sweep requested reads them, at most `HEARTBEATS_READ_MAX` of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.attention import FULL_RECONCILIATION_MINUTES
from trainmaster.core.reconcile.steps import ReportLoss
from trainmaster.core.timeouts import AGENT_TIMEOUT, HEARTBEATS_READ_MAX


def heartbeats_to_read(state: State, vms: tuple[Vm, ...], now: datetime) -> tuple[tuple[Replica, Vm], ...]:
    """Return the replicas whose heartbeat this reconciliation reads, with their VMs. `state` holds the whole attempt.

    Their current incarnation and the current boot of their VM have both lasted for `AGENT_TIMEOUT`, because a heartbeat
    of an earlier boot stays readable. Hosts of TPU nodes write no heartbeat.
    """
    job = state.job
    if job.state is not JobState.RUNNING:
        return ()
    vm_by_name = {vm.name: vm for vm in vms if vm.status is VmStatus.RUNNING and not vm.is_tpu}
    running = [
        (replica, vm)
        for replica in state.replicas
        if (vm := vm_by_name.get(vm_name(job.job_id, replica.replica_id))) and _has_run_long(replica, vm, now)
    ]
    parts = -(-len(running) // HEARTBEATS_READ_MAX)
    part = int(now.timestamp()) // (60 * FULL_RECONCILIATION_MINUTES) % max(parts, 1)
    return tuple(running[part::parts]) if running else ()


def find_silent_agents(
    job_id: str, read: tuple[tuple[Replica, Vm], ...], heartbeats: Mapping[str, datetime], now: datetime
) -> tuple[ReportLoss, ...]:
    """Return the losses to report, each at the time of the last heartbeat: it may explain exits of peers since then.

    `heartbeats`: the last heartbeat of each VM, by its instance id. VMs without a known heartbeat are absent. A VM
    whose heartbeat is unknown is not lost. If several VMs were read and all of them are silent, none is lost: wrong
    heartbeats are more likely than VMs that all hang at once.
    """
    silent = [
        ReportLoss(replica, vm_name(job_id, replica.replica_id), vm, LossCause.AGENT_SILENT, _last_sign(replica, last))
        for replica, vm in read
        if (last := heartbeats.get(vm.instance_id)) and now - last >= AGENT_TIMEOUT
    ]
    return () if len(silent) == len(read) > 1 else tuple(silent)


def _has_run_long(replica: Replica, vm: Vm, now: datetime) -> bool:
    if replica.state is not ReplicaState.RUNNING or replica.instance_id != vm.instance_id:
        return False
    since = [moment for moment in (replica.ready_at, vm.started_at) if moment is not None]
    return bool(since) and now - max(since) >= AGENT_TIMEOUT


def _last_sign(replica: Replica, heartbeat: datetime) -> datetime:
    """Return when the agent was last known to work: at its last heartbeat, or later, when it reported the replica
    ready."""
    return max(heartbeat, replica.ready_at) if replica.ready_at else heartbeat
