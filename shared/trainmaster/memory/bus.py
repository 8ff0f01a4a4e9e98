"""The Bus port in memory: one queue of all published messages, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ATTRIBUTE_BYTES_MAX: Final = 1024
"""Source: Pub/Sub quotas, attribute value size. The emulator accepts more."""


@dataclass(frozen=True, slots=True)
class Message:
    """A published message."""

    topic: str
    data: bytes
    attributes: Mapping[str, str]


class MemoryBus:
    """See `trainmaster.ports.Bus`. Thread-safe."""

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._has_messages = threading.Condition()

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        if any(len(value.encode()) > ATTRIBUTE_BYTES_MAX for value in attributes.values()):
            raise ValueError(f"an attribute value has more than {ATTRIBUTE_BYTES_MAX} bytes; Pub/Sub rejects it")
        with self._has_messages:
            self._queue.append(Message(topic, data, dict(attributes)))
            self._has_messages.notify_all()

    def take(self, timeout_s: float = 0.0) -> Message | None:
        """Remove and return the oldest message, or None if there is none within `timeout_s`."""
        with self._has_messages:
            if not self._queue:
                self._has_messages.wait(timeout_s)
            return self._queue.popleft() if self._queue else None

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        for data in messages:
            self.publish(topic, data, {})

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
