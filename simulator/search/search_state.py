"""What an exhaustive search is about: one state of a small world, and how much evil may still befall it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from shared.memory.fleet import MemoryFleet
from shared.memory.store import MemoryStore

Message = tuple[str, str]
Action = tuple[str, ...]
Key = tuple[int, int]
Json = dict[str, object]

FAILURE: Final[Json] = {"cause": "process", "exit_status": 1}
CRASH: Final[Json] = {"cause": "process", "signal": 11}
DONE: Final[Json] = {"cause": "process", "exit_status": 0}
ENDINGS: Final = {"fails": FAILURE, "crashes": CRASH, "is done": DONE}
"""`crashes` reruns the job."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How often each evil may still happen on the way to a state."""

    duplicates: int = 1
    crashes: int = 1
    failures: int = 1
    losses: int = 1
    sweeps: int = 1


@dataclass(slots=True)
class Node:
    """`incarnations`: the last incarnation each VM's agent has started, `running`: those that live; `waiting`: messages that are not
    acknowledged yet, in no order."""

    store: MemoryStore
    fleet: MemoryFleet
    left: Allowance
    ticks: int = 0
    waiting: tuple[Message, ...] = ()
    incarnations: dict[str, Key] = field(default_factory=dict)
    running: dict[str, Key] = field(default_factory=dict)

    def copy(self) -> Node:
        return replace(
            self,
            store=self.store.copy(),
            fleet=self.fleet.copy(),
            incarnations=dict(self.incarnations),
            running=dict(self.running),
        )


@dataclass(slots=True)
class Found:
    """`states` visited, `actions` taken between them, `ended` states in which nothing is left to happen."""

    states: int = 0
    actions: int = 0
    ended: int = 0
    outcomes: set[str] = field(default_factory=set)
    is_complete: bool = False
