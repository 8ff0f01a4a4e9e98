"""Invariants of machine sets, over the VMs that exist.

W1   nobody deletes a VM that is kept, unless it is broken or a later state has ordered it
W3   a set has one live holder
W    no program of the last job runs when the agent of the next one starts (`VmPool.hand_over`)

That no VM is left, in particular of a released set, is I6. That only the holder deletes VMs which
it desires is I5 of the holder.

A *machine set* is the VMs that a job keeps, after its end, for the next job. Its *holder* is the
job that uses them, or that used them last. The history calls these checks: before each deletion of
a VM, and after each commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import VmStatus
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.vm import SimVm


def check_kept(vm: SimVm, store: MemoryStore) -> str | None:
    """Check that this VM, which is about to be deleted, is not kept (W1).

    Return the holder of its machine set; None: it has no document.
    """
    loaded = store.load(vm.label)
    machines = loaded.state.machine_set if loaded else None
    if machines is None:
        return None
    is_kept = any(kept.instance_id == vm.observed.instance_id for kept in machines.vms)
    is_whole = vm.observed.status in (VmStatus.CREATING, VmStatus.RUNNING)
    if machines.is_kept and is_kept and is_whole:
        raise ViolationError(f"W1: deleted {vm.observed.name}, which {machines.holder} keeps")
    return machines.holder


def check_holders(jobs: Iterable[Job | None]) -> None:
    """Check that no two live jobs hold one set (W3)."""
    live = (job for job in jobs if job and job.machines and not job.state.is_terminal)
    held = Counter(job.set_id for job in live)
    twice = [set_id for set_id, count in held.items() if count > 1]
    if twice:
        raise ViolationError(f"W3: two live jobs hold the machine sets {twice}")
