"""State that all parts of one history share: time, randomness, the active faults, and the trace."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from trainmaster_local.simulator.scenarios.fault_profiles import Profile
from trainmaster_local.simulator.world.scheduler import Scheduler

TraceLine = tuple[float, str, tuple[object, ...]]
"""Virtual time in seconds, kind of event, details."""


@dataclass(slots=True)
class Context:
    """Shared by every part of one history."""

    rng: random.Random
    """The only source of randomness: the same seed gives the same history."""
    faults: Profile
    """The faults that may happen now.

    Replaced by a profile without faults when the fault period ends.
    """
    scheduler: Scheduler = field(default_factory=Scheduler)
    trace_lines: list[TraceLine] = field(default_factory=list)
    """The trace: one line per event, in order."""

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.scheduler.now

    def sleep(self, seconds: float) -> None:
        """Let other actions run meanwhile."""
        self.scheduler.run_until(self.now + seconds)

    def chance(self, probability: float) -> bool:
        """Return True with this probability. A probability of 0 draws no random number."""
        return probability > 0 and self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        """Return a random number of this range."""
        return low + (high - low) * self.rng.random()

    def log(self, kind: str, *details: object) -> None:
        """Append a line to the trace.

        Lines are formatted only if the history fails, because there are thousands.
        """
        self.trace_lines.append((self.now, kind, details))

    def format_trace(self, last: int | None = None) -> str:
        """Return the last lines of the trace as text, or all of them."""
        lines = self.trace_lines if last is None else self.trace_lines[-last:]
        return "\n".join(
            f"{at:10.3f}  {kind:12s} {' '.join(map(str, details))}" for at, kind, details in lines
        )

    def digest(self) -> str:
        """Return a hash of the whole trace: equal for equal histories."""
        return hashlib.sha256(self.format_trace().encode()).hexdigest()
