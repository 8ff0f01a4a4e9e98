"""How the document of a machine set changes: when its holder ends, when a next job takes it, when
VMs of it are lost, and when it is released.

A machine set is VMs that one job after another uses (`core.model.machine_set`). The holder is the
job that has them now, and the tenure is the number of that job among all holders. The VMs fit a job
if it would request the same. The fuse is the time at which Compute Engine deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from trainmaster.core.model.fit import fit_of
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.machine_set import (
    HeldMachines,
    KeptPeriod,
    KeptVm,
    MachineSet,
    SetState,
    Taken,
)
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.task_group import TaskGroup


def ended_set(state: State, ended: Job, now: datetime, *, keeps: bool) -> MachineSet | None:
    """Return the machine set after its holder has ended.

    None: no other job has ever held it, and nothing is kept. `state` holds the whole attempt if
    `keeps`.
    """
    held = ended.machines
    before = state.machine_set
    if held is None:
        return None
    job = state.job.placed
    vms = tuple(_kept_vms(job, state.replicas)) if keeps else ()
    if not vms:
        return released_set(before, now) if before else None
    fuse_at = job.created_at + timedelta(seconds=job.plan.fuse_s)
    if before:
        fuse_at = min(fuse_at, before.fuse_at)
    generations = [replica.vm_generation for replica in state.replicas]
    return MachineSet(
        set_id=held.set_id,
        holder=ended.job_id,
        tenure=held.tenure,
        state=SetState.KEPT,
        zone=job.zone,
        fit=fit_of(job),
        fuse_at=fuse_at,
        ended_at=now,
        until=min(now + timedelta(seconds=job.plan.keep_s or 0), fuse_at),
        vms=vms,
        groups=_kept_groups(job.plan.groups, vms),
        usd_per_hour=job.plan.limits.usd_per_hour * len(vms) / len(job.plan.replica_ids),
        vm_generation=max(*generations, before.vm_generation if before else 0),
        kept_periods=before.kept_periods if before else (),
        version=before.version + 1 if before else 1,
    )


def _kept_vms(job: Job, replicas: Sequence[Replica]) -> list[KeptVm]:
    """Return the VMs whose agents have reported, and that were bought as the first VM would be."""
    kept = []
    for replica in replicas:
        purchase = job.plan.group(replica.replica_id.task_type).purchase
        is_as_bought_first = purchase.price_after(replica.vms_lost) == purchase.price
        if replica.attempt == job.attempt and replica.instance_id and is_as_bought_first:
            kept.append(KeptVm(replica.replica_id, replica.instance_id, replica.vm_generation))
    return kept


def _kept_groups(groups: Sequence[TaskGroup], vms: Sequence[KeptVm]) -> tuple[TaskGroup, ...]:
    """Return the roles of the kept VMs, with their numbers and without programs."""
    counts = Counter(vm.replica_id.task_type for vm in vms)
    return tuple(
        replace(group, count=counts[group.task_type], program=None)
        for group in groups
        if counts[group.task_type]
    )


def released_set(machines: MachineSet, now: datetime) -> MachineSet:
    """Return the set after its release: no job may take it any more."""
    return replace(
        machines,
        state=SetState.RELEASED,
        vms=(),
        kept_periods=_with_period(machines, machines.vms, now),
        version=machines.version + 1,
    )


def set_after_loss(machines: MachineSet, lost: Container[str], now: datetime) -> MachineSet:
    """Return the set without the VMs of these instance ids; released if it has no others.

    No job pays for them from now on, and they count in no limit.
    """
    left = tuple(vm for vm in machines.vms if vm.instance_id not in lost)
    if not left:
        return released_set(machines, now)
    gone = tuple(vm for vm in machines.vms if vm.instance_id in lost)
    return replace(
        machines,
        vms=left,
        groups=_kept_groups(machines.groups, left),
        usd_per_hour=machines.usd_per_hour * len(left) / len(machines.vms),
        kept_periods=_with_period(machines, gone, now),
        version=machines.version + 1,
    )


def taken_set(taken: Taken, job: Job, now: datetime) -> MachineSet:
    """Return the set in the hands of its next holder."""
    machines = taken.machine_set
    return replace(
        machines,
        holder=job.job_id,
        tenure=machines.tenure + 1,
        state=SetState.IN_USE,
        vms=(),
        kept_periods=_with_period(machines, machines.vms, now),
        version=machines.version + 1,
    )


def _with_period(
    machines: MachineSet, vms: tuple[KeptVm, ...], now: datetime
) -> tuple[KeptPeriod, ...]:
    """Return the periods in which VMs were kept, with the period of these VMs, which ends now."""
    if not machines.is_kept:
        return machines.kept_periods
    ended_at = max(now, machines.ended_at)
    period = KeptPeriod(machines.holder, machines.ended_at, ended_at, vms)
    return (*machines.kept_periods, period)


def with_taken(job: Job, taken: Taken) -> Job:
    """Return the job that holds the set."""
    machines = taken.machine_set
    held = job.machines or HeldMachines(job.job_id)
    return replace(job, machines=replace(held, set_id=machines.set_id, tenure=machines.tenure + 1))


def taking_replicas(
    replicas: Sequence[Replica], taken: Taken, now: datetime
) -> tuple[Replica, ...]:
    """Return the replicas with the VMs that they take.

    A VM that vanishes is then lost, not missing. The others request VMs of a generation that no VM
    of the set has had.
    """
    vms = {vm.replica_id: vm for vm in taken.vms}
    changed = []
    for replica in replicas:
        vm = vms.get(replica.replica_id)
        changed.append(
            replace(
                replica,
                instance_id=vm.instance_id if vm else None,
                vm_generation=(vm.vm_generation if vm else taken.machine_set.vm_generation + 1),
                ordered_at=now,
                version=replica.version + 1,
            )
        )
    return tuple(changed)
