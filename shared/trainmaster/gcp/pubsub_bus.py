"""The Bus on Pub/Sub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from google.api_core import exceptions
from google.pubsub_v1.services.publisher import PublisherClient
from google.pubsub_v1.types import PubsubMessage

from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import RefusedError, TemporaryError
from trainmaster.gcp.errors import Translation, describe, google_errors, translate
from trainmaster.gcp.retries import CALL

BATCH_MAX: Final = 1000
"""Messages in one request.

Source: Pub/Sub quotas. A request may have 10 MB; ours have some hundred bytes each.
"""


class PubsubBus:
    """The topics of one project. Messages may be delivered more than once and in any order.

    Adapter of `trainmaster.ports.Bus`. Thread-safe, as its client is.
    """

    def __init__(
        self, client: PublisherClient, project: str, translation: Translation | None = None
    ) -> None:
        """`translation` returns the exception for an error of Google's; None: the table of
        `trainmaster.gcp.errors` does, but for a missing topic.
        """
        self._client = client
        self._project = project
        self._translation = translation or _keep_events_of_missing_topics

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Publish one message, and return when it is stored.

        Raises TemporaryError if that is uncertain; the message may then still have been stored.
        """
        self._publish(topic, [PubsubMessage(data=data, attributes=dict(attributes))])

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in as few requests as possible."""
        for start in range(0, len(messages), BATCH_MAX):
            batch = messages[start : start + BATCH_MAX]
            self._publish(topic, [PubsubMessage(data=data) for data in batch])

    def _publish(self, topic: str, messages: list[PubsubMessage]) -> None:
        path = f"projects/{self._project}/topics/{name_in_installation(topic)}"
        with google_errors(f"publish to {topic}", self._translation):
            self._client.publish(topic=path, messages=messages, **CALL)

    def close(self) -> None:
        self._client.transport.close()


def _keep_events_of_missing_topics(error: exceptions.GoogleAPICallError) -> Exception | None:
    """Translate as `trainmaster.gcp.errors` does. The event that leads to a message waits in
    Pub/Sub until the message's topic exists.
    """
    if isinstance(error, exceptions.NotFound):
        return RefusedError(f"{describe(error)} Create the topic: `terraform apply` in infra/")
    return translate(error)


def as_temporary_error(error: exceptions.GoogleAPICallError) -> TemporaryError:
    """Translate every error into a TemporaryError, for messages that no job waits for.

    A missing topic or permission is repaired by an operator. Until then the publisher continues
    without the message.
    """
    return TemporaryError(describe(error))
