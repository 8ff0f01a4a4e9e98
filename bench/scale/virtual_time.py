"""Virtual time, for the models of `bench.scale`.

Work that waits is a greenlet (a function with a stack of its own), which its world resumes when the
time has come. Only one greenlet runs at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

from greenlet import getcurrent, greenlet

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """The clock, and what is planned."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        """A heap: time, number, action. Actions of one time run in the order of their numbers."""
        self._numbers = count()
        self._hub = getcurrent()
        """The greenlet of `run`, to which all others return when they wait."""

    def now(self) -> datetime:
        """Return the virtual time as a date."""
        return START + timedelta(seconds=self.now_s)

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Plan an action that does not wait."""
        heapq.heappush(self._planned, (self.now_s + delay_s, next(self._numbers), action))

    def start(self, work: Callable[[], object]) -> None:
        """Begin work that may wait, as soon as what runs now waits or ends."""
        self.after(0.0, lambda: greenlet(work, self._hub).switch())

    def pause(self, seconds: float) -> None:
        """Wait within what `start` began."""
        waiting = getcurrent()
        self.after(seconds, waiting.switch)
        self._hub.switch()

    def run(self, until_s: float) -> None:
        """Let time pass until this moment."""
        while self._planned and self._planned[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._planned)
            action()
        self.now_s = until_s

    def run_all(self, width: int, tasks: Sequence[Callable[[], None]]) -> None:
        """Run all tasks, `width` of them side by side, and then raise the first error."""
        if len(tasks) == 1:
            tasks[0]()
            return
        waiting = getcurrent()
        errors: dict[int, Exception] = {}
        left = list(enumerate(tasks))[::-1]
        running = 0

        def work() -> None:
            nonlocal running
            while left:
                number, task = left.pop()
                try:
                    task()
                except Exception as error:  # noqa: BLE001 - raised below
                    errors[number] = error
            running -= 1
            if not running:
                self.after(0.0, waiting.switch)

        for _ in range(min(width, len(tasks))):
            running += 1
            self.start(work)
        if running:
            self._hub.switch()
        if errors:
            raise errors[min(errors)]


class Slots:
    """Places that work waits for, in the order of its arrival."""

    def __init__(self, world: World, places: int) -> None:
        self._world = world
        self._free = places
        self._waiting: list[Callable[[], None]] = []
        self._next = 0
        """Index of the work in `_waiting` that is the next one: those before it have begun."""
        self.waiting_max = 0

    def start(self, work: Callable[[], None]) -> None:
        """Begin the work when a place is free. It has the place until it ends."""
        if self._free:
            self._free -= 1
            self._world.start(partial(self._work, work))
            return
        self._waiting.append(work)
        self.waiting_max = max(self.waiting_max, len(self._waiting) - self._next)

    def _work(self, work: Callable[[], None]) -> None:
        work()
        if self._next == len(self._waiting):
            self._waiting = []
            self._next = 0
            self._free += 1
            return
        following = self._waiting[self._next]
        self._next += 1
        self._world.start(partial(self._work, following))
