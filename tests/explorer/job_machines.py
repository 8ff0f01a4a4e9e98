"""The VMs that one job has had, and what the service knows about each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.core.actions import Ignore
from trainmaster.core.events import VmLost
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm


class JobMachines:
    """All VMs of one job, in the order in which it got them."""

    def __init__(self) -> None:
        self.by_generation: dict[tuple[ReplicaId, int], list[ExploredVm]] = {}
        """Replica and VM generation → its VMs: one in each zone where the job has been."""
        self.given_up: list[ExploredVm] = []
        """VMs that the service has deleted."""
        self.reported: set[str] = set()
        """Instance ids of VMs whose agents' reports were recorded."""
        self.lost: set[str] = set()
        """Instance ids of VMs whose loss was recorded."""

    def add(self, vm: ExploredVm) -> list[ExploredVm]:
        """Add a VM, and return all of its replica and generation."""
        same = self.by_generation.setdefault((vm.replica_id, vm.generation), [])
        same.append(vm)
        return same

    def on_commit(self, state: State, entry: LedgerEntry) -> None:
        """Note which VMs the service has heard of, and which of them it knows as lost."""
        self.reported |= {replica.instance_id for replica in state.replicas if replica.instance_id}
        if isinstance(entry.event, VmLost) and not isinstance(entry.decision.action, Ignore):
            self.lost.add(entry.event.subject.vm.instance_id)

    def present(self) -> list[ExploredVm]:
        return [vm for vms in self.by_generation.values() for vm in vms if not vm.is_gone]

    def unfound(self, floor: int) -> set[str]:
        """Return the instance ids of VMs that the service gave up, or left behind in another zone,
        without a recorded loss.

        `floor`: the lowest VM generation in the zone where the job is now.
        """
        left = {
            vm.instance_id
            for vms in self.by_generation.values()
            for vm in vms
            if vm.generation < floor
        }
        return (left | {vm.instance_id for vm in self.given_up}) - self.lost
