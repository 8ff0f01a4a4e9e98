"""The clock of the machine, and pauses.

The agent's decisions take time from here alone, so that a history in virtual time can run them.
What watches real processes, such as `program`, measures real time.
"""

from __future__ import annotations

import time


class Clock:
    """May be used on any thread."""

    def now_s(self) -> float:
        """Return the seconds since 1970. The clock may be wrong, and may be set."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds that never go back, from an arbitrary beginning."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Pause this thread."""
        time.sleep(seconds)
