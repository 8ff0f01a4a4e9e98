"""Heartbeats: running replicas whose agent is gone or hangs with its VM, and set-ups that take long.

An agent writes the time to a guest attribute of its VM every minute. Listings do not show guest attributes, and reading
one is a call, so only a reconciliation that the sweep requested reads those of running replicas, at most
`HEARTBEATS_READ_MAX` of them. Those of VMs that are set up are read after the startup timeout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeGuard, TypeVar

from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.members import is_held, is_ready
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.attention import FULL_RECONCILIATION_MINUTES, is_full_reconciliation
from trainmaster.core.reconcile.startup_timeout import find_startup_timeouts
from trainmaster.core.reconcile.steps import ReportLoss, Step, Steps
from trainmaster.core.timeouts import (
    AGENT_TIMEOUT,
    ALL_AGENTS_TIMEOUT,
    HEARTBEATS_READ_MAX,
    HELD_AGENT_TIMEOUT,
    SETUP_MAX_S,
)

T = TypeVar("T")


def heartbeats_to_read(state: State, vms: tuple[Vm, ...], now: datetime) -> tuple[tuple[Replica, Vm], ...]:
    """Return the replicas whose heartbeat this reconciliation reads, with their VMs. `state` holds the whole attempt.

    Their current incarnation and the current boot of their VM have both lasted for the timeout, because a heartbeat of
    an earlier boot stays readable. Jobs with TPU nodes are reconciled every minute: their heartbeats are read less
    often, unless a held round waits for them.
    """
    job = state.job
    if job.state is not JobState.RUNNING and not job.round.is_held:
        return ()
    is_due = is_full_reconciliation(job, now)
    vm_by_name = {vm.name: vm for vm in vms if vm.status is VmStatus.RUNNING}
    running = [
        (replica, vm)
        for replica in state.replicas
        if (vm := vm_by_name.get(vm_name(job.job_id, replica.replica_id))) and _has_run_long(job, replica, vm, now)
        if is_due or _is_awaited(job, replica) or not (vm.is_tpu or job.round.is_held)
    ]
    return part_to_read(running, now, 1 if job.round.is_held else FULL_RECONCILIATION_MINUTES)


def part_to_read(items: Sequence[T], now: datetime, minutes: int) -> tuple[T, ...]:
    """Return the at most `HEARTBEATS_READ_MAX` items whose heartbeats are read now. The next follow after `minutes`."""
    parts = -(-len(items) // HEARTBEATS_READ_MAX)
    return tuple(items[int(now.timestamp()) // (60 * minutes) % parts :: parts]) if items else ()


def suspendable_timeouts(steps: Steps, state: State, vms: tuple[Vm, ...], now: datetime) -> dict[str, Vm]:
    """Return the VMs, by name, whose startup timeouts are suspended while their agents write heartbeats: their set-up
    takes long, but not longer than `SETUP_MAX_S`."""
    timeouts = {step.name: step.vm for step in steps.steps if _is_timeout(step) and step.vm}
    overdue = {loss.name for loss in find_startup_timeouts(state, vms, now, SETUP_MAX_S)} if timeouts else ()
    return {name: vm for name, vm in timeouts.items() if name not in overdue}


def without_timeouts(steps: Steps, names: Collection[str]) -> Steps:
    """Return the steps without the startup timeouts of these VMs."""
    return replace(steps, steps=tuple(step for step in steps.steps if not (_is_timeout(step) and step.name in names)))


def is_silent(heartbeat: datetime | None, now: datetime) -> bool:
    """Whether no heartbeat is known, or the last one is old."""
    return heartbeat is None or now - heartbeat >= AGENT_TIMEOUT


def _is_timeout(step: Step) -> TypeGuard[ReportLoss]:
    return isinstance(step, ReportLoss) and step.cause is LossCause.STARTUP_TIMEOUT


def find_silent_agents(
    job: Job, read: tuple[tuple[Replica, Vm], ...], heartbeats: Mapping[str, datetime], now: datetime
) -> tuple[ReportLoss, ...]:
    """Return the losses to report, each at the time of the last heartbeat: it may explain exits of peers since then.

    `heartbeats`: the last heartbeat of each VM, by its instance id. VMs without a known heartbeat are absent. A VM
    whose heartbeat is unknown is not lost. If several VMs were read and all of them are silent, those are lost that a
    held round waits for, and all after `ALL_AGENTS_TIMEOUT`.
    """
    silent = [
        (replica, vm, last)
        for replica, vm in read
        if (last := heartbeats.get(vm.instance_id)) and now - last >= _timeout(job, replica)
    ]
    is_doubtful = len(silent) == len(read) > 1
    return tuple(
        ReportLoss(
            replica, vm_name(job.job_id, replica.replica_id), vm, LossCause.AGENT_SILENT, _last_sign(replica, last)
        )
        for replica, vm, last in silent
        if not is_doubtful or _is_awaited(job, replica) or now - last >= ALL_AGENTS_TIMEOUT
    )


def _is_awaited(job: Job, replica: Replica) -> bool:
    """Whether a held round waits for the agent's report."""
    return is_held(job, replica.replica_id) and not is_ready(job, replica)


def _timeout(job: Job, replica: Replica) -> timedelta:
    return HELD_AGENT_TIMEOUT if _is_awaited(job, replica) else AGENT_TIMEOUT


def _has_run_long(job: Job, replica: Replica, vm: Vm, now: datetime) -> bool:
    if replica.state is not ReplicaState.RUNNING or (replica.instance_id != vm.instance_id and not vm.is_tpu):
        return False
    ordered_at = job.round.ordered_at if _is_awaited(job, replica) else None
    since = [moment for moment in (replica.ready_at, vm.started_at, ordered_at) if moment is not None]
    return bool(since) and now - max(since) >= _timeout(job, replica)


def _last_sign(replica: Replica, heartbeat: datetime) -> datetime:
    """Return when the agent was last known to work: at its last heartbeat, or later, when it reported the replica
    ready."""
    return max(heartbeat, replica.ready_at) if replica.ready_at else heartbeat
