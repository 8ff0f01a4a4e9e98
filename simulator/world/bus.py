"""Pub/Sub: at least once, in any order, again after a backoff until it is acknowledged, for a hundred times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.messaging import topics
from simulator.world.context import Context

DELIVERIES_MAX: Final = 100
BACKOFF_MAX_S: Final = 60.0
LATE_S: Final = 180.0
HEALED_BY_SWEEP: Final = frozenset({topics.PROVISION, topics.SWEEP})
BUSY_S: Final = 5.0

Deliver = Callable[[str, bytes, Mapping[str, str]], bool | None]


@dataclass(slots=True)
class SimBus:
    """See `shared.ports.Bus`. `deliver` answers True: acknowledged, False: again, None: no instance was free."""

    context: Context
    deliver: Deliver = lambda *_: True
    in_flight: int = 0
    dead_letters: list[tuple[str, bytes]] = field(default_factory=list)

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        context, faults = self.context, self.context.faults
        if topic in HEALED_BY_SWEEP and context.chance(faults.lost):
            context.say("lost", topic)
            return
        if topic == topics.DEAD_LETTER:
            self.dead_letters.append((attributes.get("function", ""), data))
            return
        for _ in range(2 if context.chance(faults.duplicate) else 1):
            delay_s = context.between(1, LATE_S) if context.chance(faults.late) else context.between(0.02, 0.4)
            self.in_flight += 1
            context.scheduler.after(delay_s, lambda: self._attempt(topic, data, attributes, 1))

    def _attempt(self, topic: str, data: bytes, attributes: Mapping[str, str], nth: int) -> None:
        context = self.context
        answer = self.deliver(topic, data, attributes)
        if answer is None:
            context.scheduler.after(BUSY_S, lambda: self._attempt(topic, data, attributes, nth))
            return
        again_s = min(BACKOFF_MAX_S, 2.0 ** min(nth - 1, 6)) * context.between(0.8, 1.2)
        if answer and context.chance(context.faults.duplicate * 0.3):
            answer = False  # the acknowledgement was lost, or came after its deadline
        if answer:
            self.in_flight -= 1
        elif nth >= DELIVERIES_MAX:
            self.in_flight -= 1
            self.dead_letters.append((topic, data))
            context.say("dead-letter", topic)
        else:
            context.scheduler.after(again_s, lambda: self._attempt(topic, data, attributes, nth + 1))
