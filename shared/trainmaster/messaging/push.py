"""Handling of Pub/Sub push requests: the entry point of every event function.

    204  handled, or impossible to handle (then it is in the dead-letter topic with the reason): not delivered again
    503  TemporaryError: delivered again after the subscription's backoff
    500  any other exception is a bug: delivered again, and dead-lettered by Pub/Sub after the last delivery

Eventarc posts the same body, so one function serves both. Responses never contain parts of the request.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.messaging import json_log, topics

if TYPE_CHECKING:
    from flask import Request

    from trainmaster.ports import Bus

Response = tuple[str, int]

REASON_LENGTH_MAX: Final = 1000
"""In bytes. Pub/Sub allows 1,024 bytes in the value of an attribute."""
INVALID_BODY_BYTES_MAX: Final = 1 << 20
"""How much of an undecodable request is kept in its dead letter."""
DEAD_LETTER_PREFIX: Final = "CloudPubSubDeadLetterSource"
"""Prefix of the attributes that Pub/Sub adds when it dead-letters a message. In other messages they are forged."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """A Pub/Sub message, decoded from its push request."""

    data: bytes
    attributes: Mapping[str, str]
    message_id: str
    published_at: datetime
    """When Pub/Sub accepted the message."""
    subscription: str = ""
    """Full resource name."""


def serve(request: Request, function: str, handle: Callable[[Message], object], bus: Callable[[], Bus]) -> Response:
    """Decode the request, call `handle` with the message, and return the response for Pub/Sub.

    `function` is the name in logs and dead letters. `bus` is called only if a dead letter must be written.
    """
    json_log.configure()
    try:
        message = decode(request.get_data())
    except PermanentError as error:
        message = Message(request.get_data()[:INVALID_BODY_BYTES_MAX], {}, "", datetime.now(UTC))
        return _dead_letter(message, function, str(error), bus)
    with json_log.context(function=function, message_id=message.message_id):
        try:
            handle(message)
        except PermanentError as error:
            return _dead_letter(message, function, str(error), bus)
        except TemporaryError as error:
            _log.warning("message will be redelivered: %s", error)
            return "try again later", 503
        except Exception:
            _log.exception("%s failed on message %s", function, message.message_id)
            raise
    return "", 204


def decode(body: bytes) -> Message:
    """Return the message of a push request. Raises PermanentError if the body is not one.

    `data` and `attributes` may be absent from the envelope `{"message": {"data", "attributes", "messageId"}}`.
    """
    try:
        envelope = json.loads(body)
        message = envelope["message"]
        attributes = message.get("attributes") or {}
        data = base64.b64decode(message.get("data") or "", validate=True)
        message_id = message.get("messageId") or message.get("message_id") or ""
        publish_time = message.get("publishTime") or message.get("publish_time")
        published_at = datetime.fromisoformat(publish_time) if publish_time else datetime.now(UTC)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise PermanentError("not a Pub/Sub push request") from None
    if not isinstance(attributes, dict) or not all(isinstance(value, str) for value in attributes.values()):
        raise PermanentError("attributes of a Pub/Sub message must be strings")
    return Message(data, attributes, str(message_id), published_at, str(envelope.get("subscription") or ""))


def _dead_letter(message: Message, function: str, reason: str, bus: Callable[[], Bus]) -> Response:
    """Publish the message to the dead-letter topic, with the reason and with what a replay needs to know."""
    _log.error("message cannot be handled and goes to the dead-letter topic: %s", reason)
    own = {name: value for name, value in message.attributes.items() if not name.startswith(DEAD_LETTER_PREFIX)}
    attributes = {
        **own,
        "reason": _truncate(reason),
        "function": function,
        "message_id": message.message_id,
        "published_at": message.published_at.isoformat(),
        "subscription": message.subscription.rpartition("/")[2],
    }
    try:
        bus().publish(topics.DEAD_LETTER, message.data or b"(empty)", attributes)
    except TemporaryError as error:
        _log.warning("the dead letter could not be written: %s", error)
        return "try again later", 503
    return "", 204


def _truncate(text: str) -> str:
    return text.encode()[:REASON_LENGTH_MAX].decode(errors="ignore")
