"""The real cause of the end of each simulated program, which invariants compare with decisions.

The control plane never sees it.
"""

from __future__ import annotations

from collections import defaultdict
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
    culprit: ProgramEnd | None = None
    """For `EndCause.PEER`: the end that broke the cluster."""


@dataclass(slots=True)
class ProgramEnds:
    """The ends of all programs of one job. A slice has one program on each host."""

    _ends: defaultdict[tuple[ReplicaId, VmIncarnation], list[ProgramEnd]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, end: ProgramEnd) -> None:
        self._ends[end.replica_id, end.vm_incarnation].append(end)

    def find_culprit(self, replica_id: ReplicaId, vm_incarnation: VmIncarnation) -> ProgramEnd | None:
        """Return the end of another replica's program that ended this incarnation; None if it failed by itself."""
        ends = self._ends[replica_id, vm_incarnation]
        culprits = [end.culprit for end in ends if end.culprit and end.culprit.replica_id != replica_id]
        is_innocent = len(culprits) == len(ends) > 0
        return culprits[0] if is_innocent else None
