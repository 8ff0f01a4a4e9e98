"""The Bus on Pub/Sub."""

from __future__ import annotations

from collections.abc import Mapping

from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.types import PubsubMessage

from shared.gcp.errors import google_errors
from shared.gcp.retries import CALL


class PubsubBus:
    """See `shared.ports.Bus`. Thread-safe, as its client is."""

    def __init__(self, client: PublisherClient, project: str) -> None:
        self._client = client
        self._project = project

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        path = f"projects/{self._project}/topics/{topic}"
        message = PubsubMessage(data=data, attributes=dict(attributes))
        with google_errors(f"publish to {topic}"):
            self._client.publish(topic=path, messages=[message], **CALL)

    def close(self) -> None:
        self._client.transport.close()
