"""The real cause of the end of each simulated program, which invariants compare with decisions.

The control plane never sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from trainmaster.core.model.replica_id import ReplicaId

VmIncarnation = tuple[str, int, int]
"""VM instance id, attempt, incarnation."""


class EndCause(Enum):
    """Why a program ended."""

    FAILED = auto()  # a failure of its own
    KILLED = auto()  # from outside: its VM or its agent ended, or it was stopped
    PEER = auto()  # another program left the cluster
    COMPLETED = auto()  # exit 0


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """The end of one program."""

    replica_id: ReplicaId
    vm_incarnation: VmIncarnation
    cause: EndCause


@dataclass(slots=True)
class ProgramEnds:
    """The ends of all programs of one job. A slice has one program on each host."""

    _ends: list[ProgramEnd] = field(default_factory=list)

    def add(self, end: ProgramEnd) -> None:
        """Note the end of a program."""
        self._ends.append(end)

    def causes(self, replica_id: ReplicaId, attempt: int, incarnation: int) -> list[EndCause]:
        """Return why the programs of this incarnation ended, on all VMs and hosts of
        the replica.
        """
        key = (replica_id, attempt, incarnation)
        return [end.cause for end in self._ends if (end.replica_id, *end.vm_incarnation[1:]) == key]

    def has(self, cause: EndCause, replica_id: ReplicaId | None = None, attempt: int = 0) -> bool:
        """Whether a program ended so; with a replica and an attempt, one of these."""
        return any(
            end.cause is cause
            and replica_id in (None, end.replica_id)
            and attempt in (0, end.vm_incarnation[1])
            for end in self._ends
        )
