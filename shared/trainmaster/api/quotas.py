"""Quotas of API requests per project and minute: 60 creations of jobs, 300 other requests.

Source of the numbers: the quotas of AI Platform Training.

Each caller has a share of the creations, so that no caller locks out the others: within it, a
creation is accepted even if others have used up the quota; beyond it, as long as the quota is not
used up. A list that reads the database several times counts as several requests.

All creations of the project are counted exactly, in the store (`api.create_job`). Each instance of
the function counts shares and all other requests for itself, because storing a count would cost
more than most requests. With N instances up to N times of these are allowed, and a client within
the quota is never refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

MINUTE_S: Final = 60.0
SHARE: Final = 10
"""Divisor of the quota of creations: every caller has a tenth of it, whatever the others create."""
CALLERS_MAX: Final = 1000
"""Callers whose creations an instance counts, the latest ones."""


@dataclass
class Bucket:
    """A leaky bucket of requests. Thread-safe."""

    per_minute: int
    """Requests that are allowed at once, and again in each following minute; 0: any number."""
    seconds: Callable[[], float]
    """A monotonic clock."""
    _level: float = 0.0
    """Requests in the bucket, which drains at `per_minute`."""
    _at: float = 0.0
    """When the level was computed last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        """Count a request and return 0.

        If the quota is used up, return the whole seconds until a request is free.
        """
        if not self.per_minute:
            return 0
        with self._lock:
            now = self.seconds()
            drained = (now - self._at) * self.per_minute / MINUTE_S
            self._level = max(self._level - drained, 0.0)
            self._at = now
            excess = self._level + 1 - self.per_minute
            if excess > 0:
                return math.ceil(excess * MINUTE_S / self.per_minute)
            self._level += 1
            return 0


class Shares:
    """Each caller's share of the quota of creations, in this instance. Thread-safe."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._buckets: LRUCache[str, Bucket] = LRUCache(CALLERS_MAX)

    def take(self, caller: str, per_minute: int) -> int:
        """Count a creation.

        Return 0 within the caller's share of `per_minute`; see `Bucket.take`.
        """
        with self._lock:
            share = max(per_minute // SHARE, 1)
            bucket = self._buckets.setdefault(caller, Bucket(share, self._seconds))
        return bucket.take()
