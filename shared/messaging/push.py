"""The door of every event function: a Pub/Sub push request in, an acknowledgement out.

    204  handled, or can never be handled (then it is in the dead letter with its reason): do not deliver again
    503  TemporaryError: deliver again after the subscription's backoff
    500  anything else is a bug: delivered again, and after the last delivery dead-lettered by Pub/Sub itself

Eventarc posts the same body, so one function serves both. Answers never contain anything of the request.
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

from shared.errors import PermanentError, TemporaryError
from shared.messaging import json_log, topics

if TYPE_CHECKING:
    from flask import Request

    from shared.ports import Bus

Answer = tuple[str, int]

REASON_LENGTH_MAX: Final = 1000
"""Pub/Sub allows 1,024 bytes in an attribute's value."""
MOVED: Final = "CloudPubSubDeadLetterSource"
"""How the attributes begin that Pub/Sub itself gives a message that it moves: in any other they would be forged."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """`told_at`: when Pub/Sub took it. `subscription` is its full name."""

    data: bytes
    attributes: Mapping[str, str]
    message_id: str
    told_at: datetime
    subscription: str = ""


def serve(request: Request, function: str, handle: Callable[[Message], object], bus: Callable[[], Bus]) -> Answer:
    """`function` names itself in logs and dead letters; `bus` is made only when a dead letter must be written."""
    json_log.start()
    try:
        message = decode(request.get_data())
    except PermanentError as error:
        message = Message(request.get_data()[: 1 << 20], {}, "", datetime.now(UTC))
        return _bury(message, function, str(error), bus)
    with json_log.context(function=function, message_id=message.message_id):
        try:
            handle(message)
        except PermanentError as error:
            return _bury(message, function, str(error), bus)
        except TemporaryError as error:
            _log.warning("delivered again later: %s", error)
            return "try again later", 503
        except Exception:
            _log.exception("%s failed on message %s", function, message.message_id)
            raise
    return "", 204


def decode(body: bytes) -> Message:
    """The envelope `{"message": {"data", "attributes", "messageId"}}`; data and attributes may be absent."""
    try:
        envelope = json.loads(body)
        message = envelope["message"]
        attributes = message.get("attributes") or {}
        data = base64.b64decode(message.get("data") or "", validate=True)
        message_id = message.get("messageId") or message.get("message_id") or ""
        said = message.get("publishTime") or message.get("publish_time")
        told_at = datetime.fromisoformat(said) if said else datetime.now(UTC)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise PermanentError("not a Pub/Sub push request") from None
    if not isinstance(attributes, dict) or not all(isinstance(value, str) for value in attributes.values()):
        raise PermanentError("attributes of a Pub/Sub message are strings")
    return Message(data, attributes, str(message_id), told_at, str(envelope.get("subscription") or ""))


def _bury(message: Message, function: str, reason: str, bus: Callable[[], Bus]) -> Answer:
    """Kept for people, under its reason, with what a replay needs: where it came from, when it was told and by whom."""
    _log.error("can never be handled, kept in the dead letter: %s", reason)
    said = {name: value for name, value in message.attributes.items() if not name.startswith(MOVED)}
    attributes = {
        **said,
        "reason": _short(reason),
        "function": function,
        "message_id": message.message_id,
        "told_at": message.told_at.isoformat(),
        "subscription": message.subscription.rpartition("/")[2],
    }
    try:
        bus().publish(topics.DEAD_LETTER, message.data or b"(empty)", attributes)
    except TemporaryError as error:
        _log.warning("the dead letter could not be written: %s", error)
        return "try again later", 503
    return "", 204


def _short(text: str) -> str:
    return text.encode()[:REASON_LENGTH_MAX].decode(errors="ignore")
