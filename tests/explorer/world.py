"""Virtual time, and the function invocations of one history, which may be suspended at every port
call.

Each invocation is a greenlet. While it is suspended, everything else may run and end in any order.
(The simulator of the package nests invocations: there, the one that began later always ends first.)
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from greenlet import getcurrent, greenlet

from tests.explorer.channels import Network
from tests.explorer.profile import Profile
from tests.explorer.threads import START
from trainmaster.errors import TemporaryError

_Planned = tuple[float, int, Callable[[], object]]

SUSPENDED_S: Final = (0.01, 12.0)
ZOMBIE_S: Final = (60.0, 400.0)
HOLD_AFTER_RESTORE: Final = frozenset(
    {
        "F1 runs twice",
        "F1 started beside another round",
        "F1 started twice on one machine",
        "F3 not ended",
        "K1 two live holders",
        "K3 paid by nobody",
        "K3 paid twice",
        "K4 still kept",
        "exception",
        "exception in an agent",
        "leak",
        "never accepted",
        "replay differs",
        "two programs on one machine",
    }
)
"""Invariants of histories in which the database was restored. The others are about decisions that
follow from one another: those that were lost cannot be compared with what happened.
"""


class CrashedError(BaseException):
    """The function's instance ended within an invocation.

    Not an Exception, so that no flow catches it.
    """


class World:
    """One history: its clock, its random numbers, and what was found in it."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.rng = random.Random(f"{profile.name}/{seed}")  # noqa: S311 - reproducible randomness is the purpose
        random.seed(seed)  # the jitter of flows
        self.now_s = 0.0
        self.has_faults = True
        self.restores = 0
        """How often the database was restored to an earlier time."""
        self.violations: list[tuple[str, str]] = []
        """What was violated, and the facts."""
        self.notes: Counter[str] = Counter()
        self.trace: list[str] = []
        self.network = Network(self)
        self.at_end: list[Callable[[], None]] = []
        """What frees the memory of the history."""
        self._hub = getcurrent()
        self._planned: list[_Planned] = []
        self._count = 0

    def log(self, *words: object) -> None:
        self.trace.append(f"{self.now_s:8.1f} " + " ".join(map(str, words)))

    def violate(self, invariant: str, *facts: object) -> None:
        if self.restores and invariant not in HOLD_AFTER_RESTORE:
            self.notes[f"after a restore: {invariant}"] += 1
            return
        self.violations.append((invariant, f"{self.now_s:.1f} " + " ".join(map(str, facts))))
        self.log("VIOLATED", invariant, *facts)

    def chance(self, probability: float) -> bool:
        """Draw whether a fault occurs. After the faults have ended, none does."""
        return self.has_faults and probability > 0 and self.rng.random() < probability

    def between(self, span_s: tuple[float, float]) -> float:
        return self.rng.uniform(*span_s)

    def clock(self, skew_s: float = 0.0) -> datetime:
        return START + timedelta(seconds=self.now_s + skew_s)

    def after(self, seconds: float, action: Callable[..., object], *args: object) -> None:
        self._count += 1
        planned: _Planned = (self.now_s + max(seconds, 0.0), self._count, partial(action, *args))
        heapq.heappush(self._planned, planned)

    def within(
        self, span_s: tuple[float, float], action: Callable[..., object], *args: object
    ) -> None:
        self.after(self.between(span_s), action, *args)

    def run(self, until_s: float, stop_when: Callable[[], bool]) -> bool:
        """Run everything that is due until `until_s`.

        Return whether `stop_when` became true before.
        """
        while self._planned and self._planned[0][0] <= until_s:
            at_s, _, action = heapq.heappop(self._planned)
            self.now_s = max(self.now_s, at_s)
            action()
            if stop_when():
                return True
        return False

    def close(self) -> None:
        """End what still waits. Call it once, when nothing runs any more."""
        for free in self.at_end:
            free()

    def begin(self, invocation: Callable[[], object]) -> None:
        """Begin an invocation. It returns here when it ends, or when it is first suspended."""
        greenlet(invocation).switch()

    def suspend(self, seconds: float) -> None:
        """Suspend the invocation that calls this; does nothing outside of invocations."""
        current = getcurrent()
        if current is not self._hub:
            self.after(seconds, current.switch)
            self.park()

    def park(self) -> None:
        """Suspend what calls this until somebody switches to it."""
        self._hub.switch()


class Port:
    """A port as an invocation sees it: every call may be suspended, fail, or be the last of its
    instance.
    """

    def __init__(
        self, world: World, port: object, on_commit: Callable[..., None] = lambda *_: None
    ) -> None:
        self._world = world
        self._port = port
        self._on_commit = on_commit
        self._restores = world.restores

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._meet_fault(f"before {name}")
            result = method(*args, **kwargs)
            if name == "commit":
                self._on_commit(args[1])
            self._meet_fault(f"after {name}")
            return result

        return call

    def _meet_fault(self, where: str) -> None:
        world = self._world
        profile = world.profile
        if world.chance(profile.suspend):
            world.suspend(world.between(SUSPENDED_S))
        if world.chance(profile.zombie):
            world.suspend(world.between(ZOMBIE_S))
        if world.chance(profile.crash):
            raise CrashedError(where)
        if world.restores > self._restores:
            raise CrashedError(where)  # no function runs while the database is replaced
        if world.chance(profile.temporary):
            raise TemporaryError(where)
