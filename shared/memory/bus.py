"""The Bus in memory: keeps what was published, in order, until someone takes it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ATTRIBUTE_BYTES_MAX: Final = 1024
"""Source: Pub/Sub's limits. Its emulator takes more."""


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    data: bytes
    attributes: Mapping[str, str]


class MemoryBus:
    """See `shared.ports.Bus`. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._arrived = threading.Condition()

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        if any(len(value.encode()) > ATTRIBUTE_BYTES_MAX for value in attributes.values()):
            raise ValueError(f"Pub/Sub takes no value of more than {ATTRIBUTE_BYTES_MAX} bytes")
        with self._arrived:
            self._waiting.append(Message(topic, data, dict(attributes)))
            self._arrived.notify_all()

    def take(self, timeout_s: float = 0.0) -> Message | None:
        """The oldest message; None where none comes in time."""
        with self._arrived:
            if not self._waiting:
                self._arrived.wait(timeout_s)
            return self._waiting.popleft() if self._waiting else None

    def drain(self) -> list[Message]:
        with self._arrived:
            found = list(self._waiting)
            self._waiting.clear()
            return found
