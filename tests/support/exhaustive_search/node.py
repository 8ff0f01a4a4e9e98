"""A node of the exhaustive search: one state of a small world, and the faults that may still happen
on its paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore

Message = tuple[str, str]
"""Topic and data."""
Action = tuple[str, ...]
"""Kind of action and its arguments."""
Key = tuple[int, int]
"""Attempt and incarnation."""
Exit = dict[str, object]
"""The details of a replica-exit event."""

COMPLETED: Final[Exit] = {"cause": "process", "exit_status": 0}
EXITS: Final[dict[str, Exit]] = {
    "fails": {"cause": "process", "exit_status": 1},
    "crashes": {"cause": "process", "signal": 11},
    "completes": COMPLETED,
}
"""How a program may end.

The exit policy restarts the replica after "fails", and reruns the job after "crashes".
"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many faults of each kind may still happen. The allowance bounds the search."""

    duplicates: int = 1
    """Messages that are delivered again."""
    crashes: int = 1
    """Function instances that end between two port calls."""
    failures: int = 1
    """Programs that do not end with exit status 0."""
    losses: int = 1
    """VMs that stop."""
    sweeps: int = 1
    """Sweeps that run before they are the only possible action."""


@dataclass(slots=True)
class Node:
    """One state of the world."""

    store: MemoryStore
    fleet: MemoryFleet
    allowance: Allowance
    ticks: int = 0
    """Seconds of virtual time: one for each function invocation."""
    pending: tuple[Message, ...] = ()
    """Messages that are not acknowledged yet, sorted, without duplicates."""
    started: dict[str, Key] = field(default_factory=dict)
    """The last incarnation that each VM has started. A VM is identified by "NAME/VM GENERATION"."""
    running: dict[str, Key] = field(default_factory=dict)
    """The incarnation that each VM is running."""
    held: dict[str, Key] = field(default_factory=dict)
    """The round that each VM has reported ready under `hold`."""
    ended: dict[str, tuple[Key, str]] = field(default_factory=dict)
    """The last incarnation of each VM that ended by itself, and its exit, until a newer one starts.
    """

    def copy(self) -> Node:
        """Return a node that can change without this one."""
        return replace(
            self,
            store=self.store.copy(),
            fleet=self.fleet.copy(),
            started=dict(self.started),
            running=dict(self.running),
            held=dict(self.held),
            ended=dict(self.ended),
        )

    def add_pending(self, message: Message) -> None:
        """Add a message.

        Pending messages are a set: a message that is delivered twice is a fault, see `Allowance`.
        """
        self.pending = tuple(sorted({*self.pending, message}))

    def remove_pending(self, message: Message) -> None:
        self.pending = tuple(other for other in self.pending if other != message)


@dataclass(slots=True)
class SearchResult:
    """Counts of what the search has visited."""

    states: int = 0
    """Different states that were visited."""
    actions: int = 0
    """Actions that were tried in them."""
    ended: int = 0
    """States in which nothing is left to happen."""
    outcomes: set[str] = field(default_factory=set)
    """Final states of the job."""
    is_complete: bool = False
    """Whether every reachable state was visited."""
