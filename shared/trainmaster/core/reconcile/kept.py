"""Steps for the machines of a set that is kept: its VMs idle, and all other VMs of the set are
deleted.

A kept VM gets the directive STOP of the incarnation (execution of its program) that would follow,
which ends the program that runs, and the agent's repeated reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.core.model.job import Job, State
from trainmaster.core.model.machine_set import KeptVm, MachineSet
from trainmaster.core.model.members import current_incarnation
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm, VmStatus
from trainmaster.core.reconcile.steps import Await, Delete, Direct, Step


def kept_steps(state: State, machines: MachineSet, vms: tuple[Vm, ...]) -> tuple[Step, ...]:
    """Return the steps for the listed VMs of a set that is kept. Nothing is created or replaced.

    VMs of a later state are left alone. `state` holds the whole attempt of the set's holder, unless
    all kept VMs idle.
    """
    kept = {vm.instance_id: vm for vm in machines.vms}
    steps: list[Step] = []
    for vm in vms:
        if is_later(machines, vm):
            continue
        if vm.instance_id not in kept or vm.status is not VmStatus.RUNNING:
            steps.append(Await(vm) if vm.status is VmStatus.STOPPING else Delete(vm))
        elif not _idles(machines, vm):
            steps.append(Direct(vm, _stop(state.job, state, kept[vm.instance_id])))
    return tuple(steps)


def lost_vms(
    state: State, machines: MachineSet, vms: Sequence[Vm], *, is_complete: bool
) -> tuple[str, ...]:
    """Return the instance ids of kept VMs that do not run, or that their replicas have lost.

    A replica may lose its VM at the moment at which its job ends. Then the function that ended the
    job has kept a VM that another function had already replaced.

    `is_complete`: whether the listing has the VMs of all zones. The replicas are only compared if
    `state` holds the whole attempt.
    """
    listed = {vm.instance_id: vm.status for vm in vms}
    lost = []
    for vm in machines.vms:
        if vm.instance_id in listed:
            is_gone = listed[vm.instance_id] is not VmStatus.RUNNING
        else:
            is_gone = is_complete
        replica = state.find(state.job.attempt, vm.replica_id)
        is_replaced = replica is not None and replica.instance_id != vm.instance_id
        if is_gone or is_replaced:
            lost.append(vm.instance_id)
    return tuple(lost)


def all_idle(machines: MachineSet, vms: Sequence[Vm]) -> bool:
    """Whether no VM of a set that is kept needs a directive."""
    kept = {vm.instance_id for vm in machines.vms}
    return all(_idles(machines, vm) for vm in vms if vm.instance_id in kept)


def _idles(machines: MachineSet, vm: Vm) -> bool:
    """Whether the VM has the directive STOP; a VM that was never handed over has it from the holder
    before.
    """
    directive = vm.directive
    if directive is None:
        return False
    return directive.tenure < machines.tenure or directive.action is DirectiveAction.STOP


def is_later(machines: MachineSet, vm: Vm) -> bool:
    """Whether a later holder of the set has ordered the VM or its directive."""
    tenure = vm.directive.tenure if vm.directive else 1
    return tenure > machines.tenure or vm.vm_generation > machines.vm_generation


def _stop(job: Job, state: State, vm: KeptVm) -> Directive:
    replica = state.find(job.attempt, vm.replica_id)
    incarnation = current_incarnation(job, replica) if replica else 0
    return Directive(job.attempt, incarnation + 1, DirectiveAction.STOP, tenure=job.tenure)
