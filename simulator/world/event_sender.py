"""How an agent tells: one event after the other, each again and again until it is accepted."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from simulator.world.bus import SimBus
from simulator.world.context import Context

BACKOFF_MAX_S: Final = 30.0
STORED_ALL_THE_SAME: Final = 0.5
"""Of the calls that failed, those whose message was stored: only the answer was lost."""

Key = tuple[int, int]
"""Attempt and incarnation."""
Soon = Callable[[tuple[float, float], Callable[[], None]], None]


@dataclass(slots=True)
class Event:
    topic: str
    key: Key
    body: dict[str, object]
    accepted: Callable[[], None]


@dataclass(slots=True)
class Lane:
    """`soon` plans something within a span of time, unless the agent is dead by then."""

    bus: SimBus
    context: Context
    soon: Soon
    _events: deque[Event] = field(default_factory=deque)
    _is_busy: bool = False
    _failures: int = 0

    def put(self, event: Event) -> None:
        self._events.append(event)
        self._carry()

    def drop_before(self, key: Key) -> None:
        self._events = deque(event for event in self._events if event.key >= key)

    def _carry(self) -> None:
        if not self._is_busy and self._events:
            self._is_busy = True
            self.soon((0.02, 0.2), self._try)

    def _try(self) -> None:
        self._is_busy = False
        if not self._events:
            return
        context, head = self.context, self._events[0]
        fails = context.chance(context.faults.unreachable)
        if not fails or context.chance(STORED_ALL_THE_SAME):
            self.bus.publish(head.topic, json.dumps(head.body).encode(), {})
        if fails:
            self._failures += 1
            self._is_busy = True
            wait_s = min(BACKOFF_MAX_S, 0.5 * 2.0 ** min(self._failures, 10))
            self.soon((wait_s * 0.5, wait_s), self._try)
            return
        self._failures = 0
        head.accepted()
        self._events.popleft()
        self._carry()
