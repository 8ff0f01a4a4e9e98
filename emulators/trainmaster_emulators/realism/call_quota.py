"""Quotas of API calls per minute, as Compute Engine enforces them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class CallQuota:
    """Counts the calls of each group within a minute. Thread-safe.

    Minutes begin with those of the clock, not with the first call. The quota of one minute may therefore be used up in
    its last second, and the quota of the next minute one second later. Source: "Compute Engine rate quotas", "refilled
    every 60 seconds".
    """

    def __init__(self, per_minute: int, minute_s: float, clock: Callable[[], float]) -> None:
        self._per_minute, self._minute_s, self._clock = per_minute, minute_s, clock
        self._lock = threading.Lock()
        self._minute = -1
        self._calls: Counter[str] = Counter()

    def admits(self, group: str) -> bool:
        """Count a call. Return False if the quota of its group is used up for this minute."""
        minute = int(self._clock() // self._minute_s)
        with self._lock:
            if minute != self._minute:
                self._minute = minute
                self._calls.clear()
            self._calls[group] += 1
            return self._calls[group] <= self._per_minute
