"""A model of Pub/Sub: at-least-once delivery in any order, retried with backoff, at
most 100 times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster_local.simulator.world.context import Context

DELIVERIES_MAX: Final = 100
"""Deliveries of a message before it is a dead letter. Source: infra/, dead letter policy."""
BACKOFF_MAX_S: Final = 60.0
"""Longest wait between two deliveries of a message, before jitter."""
LATE_S: Final = 180.0
"""Longest delay of a message that is late."""
SOON_S: Final = (0.02, 0.4)
"""Shortest and longest delay of any other message."""
BACKOFF_DOUBLINGS_MAX: Final = 6
"""Doublings of the first wait of 1 s, after which `BACKOFF_MAX_S` is exceeded."""
JITTER: Final = (0.8, 1.2)
"""Smallest and largest factor of a wait."""
LOST_ACKNOWLEDGEMENTS: Final = 0.3
"""Probability that an acknowledgement is lost, as a share of the probability that a message is
duplicated when it is published.
"""
REPAIRED_BY_SWEEP: Final = frozenset({topics.PROVISION, topics.SWEEP})
"""Messages of these topics may be lost: the next sweep publishes them again."""
REPEATED_BY_AGENT: Final = frozenset({topics.VM_READY, topics.REPLICA_EXIT})
"""Messages of these topics may be lost after Pub/Sub has accepted them: the agent repeats the
latest one.
"""
BUSY_RETRY_S: Final = 5.0
"""Delay before the next delivery when no function instance was free."""

Deliver = Callable[[str, Message], bool | None]
"""Handles a message of a topic.

Return True to acknowledge, False to have the message redelivered, None if no instance was free.
"""


@dataclass(slots=True)
class SimBus:
    """Implements `trainmaster.ports.Bus`."""

    context: Context
    deliver: Deliver = lambda *_: True
    """Called for each delivery."""
    in_flight: int = 0
    """Deliveries that are planned or being retried."""
    dead_letters: list[tuple[str, bytes]] = field(default_factory=list)
    """Function and data of the messages that could not be handled."""
    notifications: list[bytes] = field(default_factory=list)
    """Notifications of jobs that subscribers received."""
    published: int = 0
    """Messages that were accepted."""

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Plan the deliveries of the message: none if it is lost, two if it is duplicated. Each is
        late or soon.
        """
        context = self.context
        faults = context.faults
        if context.chance(self._loss_probability(topic)):
            context.log("lost", topic)
            return
        if topic == topics.DEAD_LETTER:
            self.dead_letters.append((attributes.get("function", ""), data))
            return
        if topic == topics.JOB_STATE:
            self.notifications.append(data)
            return
        self.published += 1
        message = Message(
            data, attributes, str(self.published), context.scheduler.clock(skew_s=0.0)
        )
        for _ in range(2 if context.chance(faults.duplicate) else 1):  # both have one id
            is_late = context.chance(faults.late)
            delay_s = context.between(1, LATE_S) if is_late else context.between(*SOON_S)
            self.in_flight += 1
            context.scheduler.after(delay_s, lambda: self._attempt(topic, message, attempt=1))

    def _loss_probability(self, topic: str) -> float:
        """Return how likely a message of this topic is lost. Others are never lost."""
        if topic in REPAIRED_BY_SWEEP:
            return self.context.faults.lost
        if topic in REPEATED_BY_AGENT:
            return self.context.faults.lost_event
        return 0.0

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in order."""
        for data in messages:
            self.publish(topic, data, attributes={})

    def _attempt(self, topic: str, message: Message, attempt: int) -> None:
        """Deliver the message for the `attempt`th time; plan the next delivery unless it is
        acknowledged.
        """
        context = self.context
        is_acknowledged = self.deliver(topic, message)
        if is_acknowledged is None:
            context.scheduler.after(BUSY_RETRY_S, lambda: self._attempt(topic, message, attempt))
            return
        doublings = min(attempt - 1, BACKOFF_DOUBLINGS_MAX)
        backoff_s = min(BACKOFF_MAX_S, 2.0**doublings) * context.between(*JITTER)
        if is_acknowledged and context.chance(context.faults.duplicate * LOST_ACKNOWLEDGEMENTS):
            is_acknowledged = False  # the acknowledgement was lost, or arrived after its deadline
        if is_acknowledged:
            self.in_flight -= 1
        elif attempt >= DELIVERIES_MAX:
            self.in_flight -= 1
            self.dead_letters.append((topic, message.data))
            context.log("dead-letter", topic)
        else:
            context.scheduler.after(backoff_s, lambda: self._attempt(topic, message, attempt + 1))
