"""How often the API may be asked. Source: the service's quotas per project, within a minute: 60 creations of jobs, and
300 of everything else.

Creations are counted in the state, exactly (`shared.api.create_job`). Of all else each instance of the function counts
what comes to it: to write down each read would cost more than the read. With N instances up to N times as much gets
through; who keeps to the quota in every minute is never refused.
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
    """Lets `per_minute` requests through at once, and again as time passes; 0: any number. `seconds` is a clock that
    never goes back. Thread-safe."""

    per_minute: int
    seconds: Callable[[], float]
    _level: float = 0.0
    _at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        """0 where there was room, else after how many whole seconds there will be."""
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
