"""Publishing messages to Pub/Sub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Bus(Protocol):
    """The topics of `trainmaster.messaging.topics`. Messages may be delivered more than once and in any order."""

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Publish one message, and return when it is stored.

        Raises TemporaryError if that is uncertain; the message may then still have been stored.
        """
        ...

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in as few requests as possible. Errors are those of `publish`.

        After an error, some of the messages may have been stored.
        """
        ...
