"""The Bus on Pub/Sub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.api_core import exceptions
from google.cloud import pubsub_v1

from shared.errors import TemporaryError

TIMEOUT_S: Final = 20.0


class PubsubBus:
    """See `shared.ports.Bus`. Thread-safe. Publishes at once: a function that returns has nothing left to send."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._client = pubsub_v1.PublisherClient(pubsub_v1.types.BatchSettings(max_messages=1))

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        path = self._client.topic_path(self._project, topic)
        try:
            # Attributes are the call's open keywords, beside its named ones.
            future = self._client.publish(path, data, timeout=TIMEOUT_S, **attributes)  # type: ignore[arg-type]
            future.result(timeout=TIMEOUT_S)
        except (exceptions.ServerError, exceptions.ResourceExhausted, exceptions.RetryError, TimeoutError) as error:
            raise TemporaryError(f"publish to {topic}: {error}") from error
