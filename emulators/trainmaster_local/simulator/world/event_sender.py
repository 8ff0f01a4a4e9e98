"""A simulated agent sends its events one at a time, in order, and retries each until Pub/Sub
accepts it.

In profiles that lose events (`lost_event`), the latest vm-ready or replica-exit is published again
until a directive of a later incarnation (execution of the program) answers it. In other profiles
the repetition would have no effect.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trainmaster.core.model.vm import Vm
from trainmaster.messaging import topics
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context

SEND_S: Final = (0.02, 0.2)
"""Shortest and longest time that a publish call takes."""
BACKOFF_S: Final = 1.0
"""Longest wait after the first failure. It doubles with each further one."""
BACKOFF_MAX_S: Final = 30.0
"""Longest wait before a publish call is tried again."""
DOUBLINGS_MAX: Final = 9
"""Doublings that are computed: fewer of them exceed `BACKOFF_MAX_S`."""
BACKOFF_SHORTEST: Final = 0.5
"""Shortest wait, as a share of the longest one."""
STORED_DESPITE_FAILURE: Final = 0.5
"""Share of the failed publish calls whose message was stored: only the response was lost."""

REPEAT_S: Final = (480.0, 720.0)
"""Time until the latest event is repeated. Source: `trainmaster.agent.reporting.events`."""
REPEATED: Final = (topics.VM_READY, topics.REPLICA_EXIT)
"""Topics of the events that are repeated."""

Key = tuple[int, int]
"""Attempt and incarnation."""
PlanWithin = Callable[[tuple[float, float], Callable[[], None]], None]
"""Plan an action at a random moment of a time span in seconds; it is dropped if the agent has
stopped by then.
"""


@dataclass(slots=True)
class Event:
    """One event to send. `on_accepted` is called when Pub/Sub has accepted it."""

    topic: str
    key: Key
    body: dict[str, object]
    on_accepted: Callable[[], None]


@dataclass(slots=True)
class EventSender:
    """One queue of events.

    An agent has two: one for its incarnations' events, one for VM faults.
    """

    bus: SimBus
    context: Context
    plan_within: PlanWithin
    _events: deque[Event] = field(default_factory=deque)
    _is_sending: bool = False
    """Whether a call is planned."""
    _failures: int = 0
    """Failed calls in a row."""
    _latest: Event | None = None
    """The latest accepted event that no directive has answered."""

    def put(self, event: Event) -> None:
        """Append the event, and send it when those before it have been accepted."""
        self._events.append(event)
        self._send_next()

    def drop_before(self, key: Key) -> None:
        """Discard the events of incarnations before `key`."""
        self._events = deque(event for event in self._events if event.key >= key)
        if self._latest and self._latest.key < key:
            self._latest = None

    def _send_next(self) -> None:
        """Plan the call that sends the first event, unless one is planned."""
        if not self._is_sending and self._events:
            self._is_sending = True
            self.plan_within(SEND_S, self._try)

    def _try(self) -> None:
        """Publish the first event. If the call fails, try again later, whether or not it was
        stored.
        """
        self._is_sending = False
        if not self._events:
            return
        context = self.context
        event = self._events[0]
        fails = context.chance(context.faults.unreachable)
        if not fails or context.chance(STORED_DESPITE_FAILURE):
            self.bus.publish(event.topic, json.dumps(event.body).encode(), attributes={})
        if fails:
            self._failures += 1
            self._is_sending = True
            doublings = min(self._failures - 1, DOUBLINGS_MAX)
            wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0**doublings)
            self.plan_within((wait_s * BACKOFF_SHORTEST, wait_s), self._try)
            return
        self._failures = 0
        event.on_accepted()
        self._events.popleft()
        if context.faults.lost_event and event.topic in REPEATED:
            self._latest = event
            self.plan_within(REPEAT_S, lambda: self._repeat(event))
        self._send_next()

    def _repeat(self, event: Event) -> None:
        """Publish the event again, and plan the next repetition, unless a later event was accepted
        or a directive has answered this one.
        """
        if self._latest is event:
            self.bus.publish(event.topic, json.dumps(event.body).encode(), attributes={})
            self.plan_within(REPEAT_S, lambda: self._repeat(event))


def event_body(
    vm: Vm, job_id: str, host: int | None, key: Key, at: datetime, details: Mapping[str, object]
) -> dict[str, object]:
    """Return an agent event's message (docs/interfaces.md section 2).

    `host` is None on a machine with one host. `details`: the fields of this kind of event.
    """
    attempt, incarnation = key
    body: dict[str, object] = {
        "version": 1,
        "job_id": job_id,
        "attempt": attempt,
        "task_type": vm.replica_id.task_type.value,
        "task_index": vm.replica_id.index,
        "incarnation": incarnation,
        "vm_generation": vm.vm_generation,
        "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
        "at": at.isoformat(),
    }
    if host is not None:
        body["host"] = host
    return {**body, **details}
