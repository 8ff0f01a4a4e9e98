"""What every part of one history shares: time, chance, the faults of the moment, and the trace."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from simulator.scenarios.fault_profiles import Profile
from simulator.world.scheduler import Scheduler

Line = tuple[float, str, tuple[object, ...]]


@dataclass(slots=True)
class Context:
    """`faults` are those of now: none once the history's bad time is over. `steps` counts what was traced."""

    rng: random.Random
    faults: Profile
    scheduler: Scheduler = field(default_factory=Scheduler)
    lines: list[Line] = field(default_factory=list)

    @property
    def now(self) -> float:
        return self.scheduler.now

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def say(self, what: str, *about: object) -> None:
        """Kept as it is: putting thousands of lines into words is for the one history that fails."""
        self.lines.append((self.now, what, about))

    def trace(self, last: int | None = None) -> str:
        lines = self.lines if last is None else self.lines[-last:]
        return "\n".join(f"{at:10.3f}  {what:12s} {' '.join(map(str, about))}" for at, what, about in lines)

    def digest(self) -> str:
        return hashlib.sha256(self.trace().encode()).hexdigest()
