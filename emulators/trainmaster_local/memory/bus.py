"""The Bus port in memory: one queue of all published messages, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Final

from trainmaster.errors import PermanentError
from trainmaster.messaging import push

ATTRIBUTES_MAX: Final = 100
NAME_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 1024
MESSAGE_BYTES_MAX: Final = 10_000_000
"""Source of all: Pub/Sub quotas, "Resource limits".

Google's emulator accepts more of everything.
"""


def message_problem(data: bytes, attributes: Mapping[str, str]) -> str:
    """Return why Pub/Sub rejects a message; empty: it accepts the message."""
    name_sizes = [len(name.encode()) for name in attributes]
    value_sizes = [len(value.encode()) for value in attributes.values()]
    are_names_legal = all(0 < size <= NAME_BYTES_MAX for size in name_sizes)
    if not data and not attributes:
        return "the message is empty"
    if len(attributes) > ATTRIBUTES_MAX or not are_names_legal:
        return (
            f"more than {ATTRIBUTES_MAX} attributes, or a name that is empty or has over"
            f" {NAME_BYTES_MAX} bytes"
        )
    if max(value_sizes, default=0) > VALUE_BYTES_MAX:
        return f"the value of an attribute has more than {VALUE_BYTES_MAX} bytes"
    if len(data) + sum(name_sizes) + sum(value_sizes) > MESSAGE_BYTES_MAX:
        return f"the message has more than {MESSAGE_BYTES_MAX} bytes"
    return ""


@dataclass(frozen=True, slots=True)
class Message(push.Message):
    """A published message, as Pub/Sub delivers it."""

    topic: str = field(kw_only=True)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryBus:
    """Adapter of `trainmaster.ports.Bus`. Thread-safe. `clock` gives the publish times.

    Tests, and a stack in one process, take the messages and give each to the function of its topic.
    """

    def __init__(self, clock: Callable[[], datetime] = _utc_now) -> None:
        self.clock = clock
        self._message_ids = count(1)
        self._queue: deque[Message] = deque()
        self._has_messages = threading.Condition()

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Append the message. Raises PermanentError for one that Pub/Sub rejects."""
        problem = message_problem(data, attributes)
        if problem:
            raise PermanentError(f"publish to {topic}: 400 {problem}")
        with self._has_messages:
            message_id = str(next(self._message_ids))
            self._append(Message(data, dict(attributes), message_id, self.clock(), topic=topic))

    def redeliver(self, message: Message) -> None:
        """Append a message that was taken and not handled. Its id and publish time stay."""
        with self._has_messages:
            self._append(message)

    def _append(self, message: Message) -> None:
        self._queue.append(message)
        self._has_messages.notify_all()

    def take(self, timeout_s: float = 0.0) -> Message | None:
        """Remove and return the oldest message, or None if there is none within `timeout_s`."""
        with self._has_messages:
            if not self._queue:
                self._has_messages.wait(timeout_s)
            return self._queue.popleft() if self._queue else None

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in order."""
        for data in messages:
            self.publish(topic, data, attributes={})

    @property
    def size(self) -> int:
        """Number of messages that were not taken."""
        return len(self._queue)

    def drain(self) -> list[Message]:
        """Remove and return all messages."""
        with self._has_messages:
            messages = list(self._queue)
            self._queue.clear()
            return messages
