"""Virtual time: an event loop that jumps from one planned action to the next.

`run_until` is re-entrant. An action may call it to let other actions run before it continues: that
is how a function invocation is suspended in the middle of a port call, without threads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 11, 21, 3, 0, 0, tzinfo=UTC)
"""The time of all clocks at the beginning of each history. It is arbitrary."""

Action = Callable[[], None]


def _do_nothing() -> None:
    """Default of `Scheduler.after_each`."""


class Scheduler:
    """Planned actions, ordered by time, and by planning order where the times are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds of virtual time since START."""
        self.after_each: Action = _do_nothing
        """Called after every action."""
        self._planned: list[tuple[float, int, Action]] = []
        """Heap of time, planning order and action."""
        self._count = 0

    def after(self, seconds: float, action: Action) -> None:
        """Plan `action` for `seconds` from now."""
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action))

    def run_until(self, end_s: float, *, stop_when: Callable[[], bool] | None = None) -> None:
        """Run all actions that are due until `end_s`.

        Return early when `stop_when` is true after an action.
        """
        planned = self._planned
        while planned and planned[0][0] <= end_s:
            at, _, action = heapq.heappop(planned)
            self.now = max(self.now, at)
            action()
            self.after_each()
            if stop_when is not None and stop_when():
                return
        self.now = max(self.now, end_s)

    def clock(self, skew_s: float = 0.0) -> datetime:
        """Return the current virtual time as a clock that is wrong by `skew_s` seconds shows it."""
        return START + timedelta(seconds=self.now + skew_s)
