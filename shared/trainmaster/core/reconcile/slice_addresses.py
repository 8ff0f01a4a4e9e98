"""Addresses of TPU slices that work together.

A VM has a DNS name before it exists. A slice has only the address of its first host, which Cloud
TPU assigns when it creates the slice. TF_CONFIG and MASTER_ADDR are made once per role, from names
alone. They therefore contain a placeholder for each slice. The addresses follow in the directive,
the metadata entry that tells an agent what to do; the agent puts them in the place of the
placeholders when it starts the program:

    slices are being created ──► every agent is told to hold
    all slices run           ──► every agent is told to run, with all addresses

A replaced slice has a new address. Programs that start later receive it; one that keeps running
does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import DirectiveAction, Vm, VmStatus
from trainmaster.core.reconcile.desired import DesiredVm, match_vms

MEGASCALE_PORT: Final = "8080"
"""Port of the coordinator of several slices, on the first host of the first slice.

Source: JAX's cluster detection for Cloud TPU, whose own coordinator uses another port.
"""


def slice_placeholder(rank: int) -> str:
    """Return the host name that stands for the address of the job's slice of this rank."""
    return f"slice-{rank}.trainmaster.internal"


def with_slice_addresses(
    job: Job, desired: tuple[DesiredVm, ...], vms: tuple[Vm, ...]
) -> tuple[DesiredVm, ...]:
    """Return the desired VMs with the addresses of all slices in their directives, or held until
    all are known.
    """
    if not job.plan.slices or not desired:
        return desired  # no program needs the address of a slice
    vm_by_name = match_vms(job, desired, vms)
    by_replica_id = {target.replica.replica_id: target for target in desired}
    addresses = [
        _address(by_replica_id.get(replica_id), vm_by_name) for replica_id in job.plan.slices
    ]
    known = tuple(address for address in addresses if address is not None)
    all_addresses = known if len(known) == len(addresses) else None
    return tuple(_with_addresses(target, all_addresses) for target in desired)


def _with_addresses(target: DesiredVm, addresses: tuple[str, ...] | None) -> DesiredVm:
    """Add the addresses to a directive that runs a program; None: they are not all known yet."""
    directive = target.directive
    if directive.action not in (DirectiveAction.RUN, DirectiveAction.SAVE):
        return target
    if addresses is None:
        return replace(
            target, directive=replace(directive, action=DirectiveAction.HOLD), awaits_slices=True
        )
    return replace(target, directive=replace(directive, slices=addresses))


def _address(target: DesiredVm | None, vm_by_name: dict[str, Vm]) -> str | None:
    """Return the slice's address: None while it is unknown, empty if the slice has completed."""
    if target is None:
        return ""
    vm = vm_by_name.get(target.name)
    if (
        vm is None
        or vm.vm_generation != target.replica.vm_generation
        or vm.status is not VmStatus.RUNNING
    ):
        return None
    return vm.address or None
