"""Virtual time: what happens next, and when.

`run_until` may be called from within something that is running: that is how a function is suspended in the middle of
a call while others go on, without threads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 11, 21, 3, 0, 0, tzinfo=UTC)

Action = Callable[[], None]


def _nothing() -> None:
    """Nobody looks."""


class Scheduler:
    """Seconds since START. What is due at the same time happens in the order in which it was planned; `happened` is
    called after each."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._planned = 0
        self.happened: Action = _nothing

    def after(self, seconds: float, action: Action) -> None:
        self._planned += 1
        heapq.heappush(self._due, (self.now + seconds, self._planned, action))

    def run_until(self, until: float, *, over: Callable[[], bool] | None = None) -> None:
        """Everything due by then; stops early once `over`."""
        due = self._due
        while due and due[0][0] <= until:
            at, _, action = heapq.heappop(due)
            self.now = max(self.now, at)
            action()
            self.happened()
            if over is not None and over():
                return
        self.now = max(self.now, until)

    def clock(self, skew_s: float = 0.0) -> datetime:
        return START + timedelta(seconds=self.now + skew_s)
