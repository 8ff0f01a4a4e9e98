"""Machine sets: VMs that one job after another uses.

    job ends, keepMachines ──► KEPT ──► IN_USE (next holder, tenure + 1) ──► KEPT …
                                │                  └─ ends and keeps nothing ──► RELEASED
                                ├─ deadline, user, capacity needed, none left ──► RELEASED
                                └─ some of its VMs are lost ──► KEPT without them

The id of a set is the id of the job that created its VMs. It is in their names and labels for ever.
A set has exactly one holder, and the set's document is created by the commit that ends a job which
keeps its machines. Every edge is one commit with the document's update time as precondition. A VM
is only deleted because RELEASED is stored, never because of a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.task_group import TaskGroup

TRIAL_KEEP_S_MAX: Final = 120
"""Longest time for which a trial's machines are kept: the next trial begins within seconds."""
KEEP_S_MAX: Final = 3600
"""Longest time for which machines are kept. Source: `KeepAlivePeriodInSeconds` of SageMaker."""


class SetState(StrEnum):
    """State of a machine set."""

    IN_USE = "IN_USE"  # a job that has not ended holds it
    KEPT = "KEPT"  # its holder has ended, and a next job may take it
    RELEASED = "RELEASED"  # no job may take it; its VMs are deleted


class ReleaseCause(StrEnum):
    """Why kept machines are released."""

    DEADLINE = "deadline"  # no job took them in time
    USER = "user"  # a user released them, or deleted the holder
    CAPACITY = "capacity"  # another job needs what they use
    TUNING_ENDED = "tuning_ended"  # no trial is left that may take them


@dataclass(frozen=True, slots=True)
class HeldMachines:
    """The part of its machine set that a job stores. Only jobs with `keepMachines` have it."""

    set_id: str
    """The job's own id, until it takes kept machines."""
    tenure: int = 1
    """Number of this job, from 1, among the holders of the set."""
    key: str = field(default="", repr=False, compare=False)
    """Secret that is part of the audience of its agents' tokens, 16 bytes in hexadecimal digits.

    The commit of the submission draws it, and only the VM configuration shows it. A program can
    obtain tokens of its VM for any audience that it can predict, also for jobs that take the VM
    later.
    """


@dataclass(frozen=True, slots=True)
class KeptVm:
    """A VM that is kept for a next job, or that this job has taken."""

    replica_id: ReplicaId
    instance_id: str
    vm_generation: int


@dataclass(frozen=True, slots=True)
class FitItem:
    """One property that the machines of a set and a job must have in common."""

    name: str
    """The name in words, for the beginning of a sentence."""
    value: str


@dataclass(frozen=True, slots=True)
class KeptPeriod:
    """A time in which VMs were kept. The job that asked for it pays."""

    job_id: str
    began_at: datetime
    ended_at: datetime
    """When the machines were taken or released."""
    vms: tuple[KeptVm, ...]


@dataclass(frozen=True, slots=True)
class MachineSet:
    """A machine set, as stored."""

    set_id: str
    holder: str
    """Id of the job that holds it, or that held it last."""
    tenure: int
    state: SetState
    zone: str
    fit: tuple[FitItem, ...]
    fuse_at: datetime
    """Earliest time at which Compute Engine deletes one of its VMs."""
    ended_at: datetime
    """When the holder ended; of a set IN_USE, when the holder before ended."""
    until: datetime
    """Until when it is kept."""
    vms: tuple[KeptVm, ...] = ()
    """The VMs that are kept."""
    groups: tuple[TaskGroup, ...] = ()
    """The roles with the number of VMs that are kept of each, without programs."""
    usd_per_hour: float = 0.0
    """List price of the kept VMs: that of all VMs of the job (`usd_per_hour` of its plan's limits),
    times the share of the VMs that are kept, whatever their roles.

    It only decides when the set makes room for other jobs; what is paid is computed for each VM.
    """
    vm_generation: int = 1
    """Highest VM generation that any of its replicas had."""
    kept_periods: tuple[KeptPeriod, ...] = ()
    """The times in which its VMs were kept, which have ended."""
    version: int = 1
    """Number of writes of this document."""

    @property
    def is_kept(self) -> bool:
        return self.state is SetState.KEPT


@dataclass(frozen=True, slots=True)
class Taken:
    """The kept machines that a job takes when it leaves the admission queue."""

    machine_set: MachineSet
    """The set as it was read."""
    candidate: int
    """Index into the plan's zones: where the machines are."""
    vms: tuple[KeptVm, ...]
    """VMs of the set that run, and that the job has a replica for."""
