"""Invariants over real VMs.

They identify VMs by numeric id, because the rules they check rely on names and labels.

I4    all events of a VM generation that change anything are about one VM, and it was created for
      that generation
I4    a VM that is called silent has written no sign of life for more than a minute
I5    a VM that the stored state desires is not deleted
I5    VMs of one generation of a replica are created in one zone only, so no two of them exist at a
      time

A *VM generation* says which VM of a replica it is; it grows each time another one is requested.
`JobInvariants` calls the checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.events import IncarnationRef
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import State
from trainmaster.core.model.machine_set import Taken
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import VmStatus
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.vm import SimVm, VmPool

Generation = tuple[ReplicaId, int]
"""A replica and one of its VM generations."""

SILENCE_MIN_S: Final = 60.0
"""Shortest time for which an agent must have been off before a rule may call its VM silent."""
# States of VMs whose deletion is checked; the others are lost anyway
USABLE: Final = (VmStatus.CREATING, VmStatus.RUNNING)


@dataclass(slots=True)
class VmInvariants:
    """The VMs of one job."""

    _created: dict[str, Generation] = field(default_factory=dict)
    """Instance id → the replica and generation that the VM was created for."""
    _zones: dict[Generation, str] = field(default_factory=dict)
    """Zone in which each generation was first created."""
    _accepted: dict[Generation, str] = field(default_factory=dict)
    """Instance id of the VM whose event first changed anything."""

    def check_creation(self, vm: SimVm) -> None:
        """Check the zone of a VM that Compute Engine begins to create (I5), and record its
        generation.
        """
        observed = vm.observed
        generation = (observed.replica_id, observed.vm_generation)
        self._created[observed.instance_id] = generation
        zone = self._zones.setdefault(generation, observed.zone)
        if observed.zone != zone:
            raise ViolationError(
                f"I5: {_describe(generation)} is created in {observed.zone}, and was created in"
                f" {zone}"
            )

    def take(self, taken: Taken) -> None:
        """Record the VMs that the job has taken from another one."""
        for vm in taken.vms:
            self._created[vm.instance_id] = (vm.replica_id, vm.vm_generation)

    def check_accepted(
        self, entry: LedgerEntry, subject: IncarnationRef, *, is_slice: bool
    ) -> None:
        """Check the VM of an event that changed something (I4).

        A VM that no longer exists has no id in its event.

        The hosts of a slice may not know the id of their node. A repeated request may therefore
        create the slice of a VM generation again after it was lost, and both count as that
        generation.
        """
        instance_id = subject.vm.instance_id
        if not instance_id:
            return
        generation = (subject.replica_id, subject.vm_generation)
        created_for = self._created.get(instance_id)
        if created_for != generation:
            raise ViolationError(
                f"I4: {entry.key} is about VM {instance_id}, which was created for {created_for}"
            )
        if is_slice:
            return
        accepted = self._accepted.setdefault(generation, instance_id)
        if accepted != instance_id:
            raise ViolationError(
                f"I4: {entry.key} is about VM {instance_id}; {_describe(generation)} is VM"
                f" {accepted}"
            )

    @staticmethod
    def check_silence(
        entry: LedgerEntry, subject: IncarnationRef, pool: VmPool, now_s: float
    ) -> None:
        """Check that a host of this VM has written no sign of life for a while (I4)."""
        for vm in (*pool.present.values(), *pool.past):
            if vm.observed.instance_id == subject.vm.instance_id and not vm.is_gone:
                off_since_s = [
                    agent.off_since_s for agent in vm.agents if agent.off_since_s is not None
                ]
                has_signs_of_life = not off_since_s or now_s - min(off_since_s) < SILENCE_MIN_S
                if has_signs_of_life:
                    raise ViolationError(
                        f"I4: {entry.key} says that VM {subject.vm.instance_id} is silent"
                    )

    def check_deletion(self, vm: SimVm, state: State | None) -> None:
        """Check that this VM, which is about to be deleted, is not one that the stored state
        desires (I5).
        """
        if state is None or state.job.state.is_terminal or vm.observed.status not in USABLE:
            return
        observed = vm.observed
        generation = (observed.replica_id, observed.vm_generation)
        if self._accepted.get(generation, observed.instance_id) != observed.instance_id:
            return  # another VM of this generation, which a repeated request created
        for replica in state.replicas:
            is_its_vm = (replica.replica_id, replica.vm_generation) == generation
            if is_its_vm and replica.state is not ReplicaState.COMPLETED:
                raise ViolationError(
                    f"I5: deleted {_describe(generation)}, VM {observed.instance_id} in"
                    f" {observed.zone}, of {replica.key} ({replica.state})"
                )


def _describe(generation: Generation) -> str:
    """Return the generation in words."""
    replica_id, vm_generation = generation
    return f"VM generation {vm_generation} of {replica_id}"
