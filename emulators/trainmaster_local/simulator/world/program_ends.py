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

    @property
    def attempt(self) -> int:
        """The execution of the whole job to which the program belonged."""
        _, attempt, _ = self.vm_incarnation
        return attempt

    @property
    def incarnation(self) -> int:
        """Number of this execution of the program within the attempt."""
        _, _, incarnation = self.vm_incarnation
        return incarnation


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
        return [
            end.cause for end in self._ends if (end.replica_id, end.attempt, end.incarnation) == key
        ]

    def has(self, cause: EndCause, replica_id: ReplicaId | None = None, attempt: int = 0) -> bool:
        """Return whether a program has ended by this cause.

        `replica_id`: only programs of this replica; None: of any. `attempt`: only programs of this
        attempt; 0: of any.
        """
        return any(
            end.cause is cause
            and replica_id in (None, end.replica_id)
            and attempt in (0, end.attempt)
            for end in self._ends
        )
