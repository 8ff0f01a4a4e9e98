"""TPU slices that work together are told where the others are.

A VM's name leads to it before it exists. A slice is reached by the address of its first host, which Cloud TPU gives it
when it is made. So in what is made of names alone, once for a role (TF_CONFIG, MASTER_ADDR), a slice has a name of ours
that leads nowhere, and the directive that starts a incarnation says what to put in its place:

    slices are coming up ──► every replica is held ──► all are up ──► run, with the addresses of all, in rank order

A slice that is replaced has another address. The incarnations that begin from then on are told that one; one that goes on
without the lost slice, if a program can, is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.core.model.job import Job
from shared.core.reconcile.plan import DesiredVm, DirectiveAction, Vm, VmStatus, chosen

MEGASCALE_PORT: Final = "8080"
"""Of the coordinator of several slices, on the first host of the first. Source: JAX's cluster detection for Cloud TPU,
which keeps its own coordinator off this port."""


def name_of(number: int) -> str:
    """Stands for the address of the job's slice of that number."""
    return f"slice-{number}.trainmaster.internal"


def introduced(job: Job, wants: tuple[DesiredVm, ...], vms: tuple[Vm, ...]) -> tuple[DesiredVm, ...]:
    """The same wants, where a incarnation may begin only when all slices are up, and is told where they are."""
    if not job.plan.slices or not wants:
        return wants
    there = chosen(job, wants, vms)
    by_replica_id = {want.replica.replica_id: want for want in wants}
    addresses = [_address(by_replica_id.get(replica_id), there) for replica_id in job.plan.slices]
    known = tuple(address for address in addresses if address is not None)
    return tuple(_told(want, known if len(known) == len(addresses) else None) for want in wants)


def _told(want: DesiredVm, slices: tuple[str, ...] | None) -> DesiredVm:
    if want.directive.action is not DirectiveAction.RUN:
        return want
    if slices is None:
        return replace(want, directive=replace(want.directive, action=DirectiveAction.HOLD), waits=True)
    return replace(want, directive=replace(want.directive, slices=slices))


def _address(want: DesiredVm | None, there: dict[str, Vm]) -> str | None:
    """None: not known yet. Empty: it has exited 0, and nobody needs it any more."""
    if want is None:
        return ""
    vm = there.get(want.name)
    if vm is None or vm.vm_generation != want.replica.vm_generation or vm.status is not VmStatus.RUNNING:
        return None
    return vm.address or None
