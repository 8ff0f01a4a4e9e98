"""The floor of VM generations: how a gang moves to another zone with one write, whatever its size.

    move ──► Placement.floor above every generation in use
         ──► each replica below it awaits a VM of that generation

A VM below the floor is outdated: provisioning deletes it, and events about it are ignored. Stored
replicas below the floor are written when their next VM reports. Until then, stores and
`core.evolve` return them as they are seen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica, ReplicaState

NO_VM: Final[dict[str, Any]] = {
    "instance_id": None,
    "host_vms": (),
    "vm_since": None,
    "next_at": None,
}
"""Fields of a replica whose VM is another one from now on."""
FLOOR_STEP: Final = 2
"""How far the floor is above the highest generation in use.

The loss of a VM that is committed at the same time as the move raises one generation by one. With
this step, that generation is still below the floor.
"""


def next_floor(replicas: Sequence[Replica]) -> int:
    """Return a VM generation above those of all these replicas, the whole attempt."""
    return max((replica.vm_generation for replica in replicas), default=0) + FLOOR_STEP


def is_below_floor(job: Job, replica: Replica) -> bool:
    """Whether the VM of this replica of the current attempt is outdated.

    A completed replica needs no VM.
    """
    is_current = replica.attempt == job.attempt and replica.state is not ReplicaState.COMPLETED
    return is_current and replica.vm_generation < job.placement.floor


def raise_to_floor(job: Job, replica: Replica, *, is_member: bool) -> Replica:
    """Return the replica that awaits its VM of the floor.

    `is_member`: it is a member of a synchronous job. Rounds count its incarnations, so its own
    count does not grow here.
    """
    changes: dict[str, Any] = {"ready_at": None, "hosts_ready": ()}
    if not replica.awaits_vm:
        changes["state"] = ReplicaState.REPLACING
        changes |= {"hosts_done": (), "quick_failures": 0, "bug": None, "failing": None}
        if not is_member:
            changes["incarnation"] = replica.incarnation + 1
    return replace(replica, vm_generation=job.placement.floor, **changes, **NO_VM)
