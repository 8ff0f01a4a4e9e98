"""Quotas of API requests per project and minute: 60 creations of jobs, 300 other requests. Source: the service's.

Creations are counted exactly, in the store (`api.create_job`). Each instance of the function counts all other
requests for itself, because storing a count would cost more than most requests. With N instances up to N times the
quota is allowed, and a client within the quota is never refused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MINUTE_S: Final = 60.0


@dataclass
class Bucket:
    """A leaky bucket of requests. Thread-safe."""

    per_minute: int
    """Requests that are allowed at once, and again in each following minute; 0: any number."""
    seconds: Callable[[], float]
    """A monotonic clock."""
    _level: float = 0.0
    _at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        """Count a request and return 0, or the whole seconds until the next one is free if the quota is used up."""
        if not self.per_minute:
            return 0
        with self._lock:
            now = self.seconds()
            drained = (now - self._at) * self.per_minute / MINUTE_S
            self._level, self._at = max(self._level - drained, 0.0), now
            if self._level + 1 > self.per_minute:
                return math.ceil((self._level + 1 - self.per_minute) * MINUTE_S / self.per_minute)
            self._level += 1
            return 0
