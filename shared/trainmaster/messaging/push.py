"""Handling of Pub/Sub push requests: the entry point of every event function.

    204  handled; or RejectedError, a submission with a mistake, which is recorded; or another
         PermanentError, and the message is in the dead-letter topic: not delivered again
    503  TemporaryError: delivered again after the subscription's backoff. RefusedError is one: a
         call that Google refuses until an operator grants a permission, for example
    500  any other exception is a bug: delivered again, and dead-lettered by Pub/Sub after the last
         delivery

Eventarc posts the same body, so one function serves both. Responses never contain parts of the
request.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from trainmaster.errors import PermanentError, RefusedError, RejectedError, TemporaryError
from trainmaster.messaging import json_log, topics

if TYPE_CHECKING:
    from flask import Request

    from trainmaster.ports import Bus

Response = tuple[str | Iterator[str], int]

VALUE_BYTES_MAX: Final = 1024
"""Longest value of an attribute. Source: Pub/Sub quotas."""
NAME_BYTES_MAX: Final = 256
"""Longest name of an attribute. Source: Pub/Sub quotas."""
BODY_BYTES_MAX: Final = 3 << 20
"""Bytes of a request that are read at most.

A job document has at most 1 MiB, which is 1.4 MB in a push request, and the largest attributes that
Pub/Sub accepts have 0.8 MB there.
"""
LETTER_BYTES_MAX: Final = 1 << 20
"""Data that a dead letter keeps: no function handles more."""
CUT_BYTES: Final = 1 << 16
"""Bytes that a dead letter keeps of a request, or of data, that is larger."""
ATTRIBUTES_MAX: Final = 100
"""Attributes of one message. Source: Pub/Sub quotas."""
ADDED: Final = ("reason", "function", "message_id", "published_at", "subscription", "cut")
"""Attributes that a dead letter has besides those of its message.

`cut`: the size in bytes before its data was cut.
"""
READ_ATTRIBUTES: Final = ("identity", "source", "overlap", "bucketId", "object")
"""Beginnings of the names of all attributes that functions read."""
LOGGED_BYTES_MAX: Final = 8192
"""Bytes of a reason that are logged: a refused job may have thousands of problems."""
DEAD_LETTER_PREFIX: Final = "CloudPubSubDeadLetterSource"
"""Prefix of the attributes that Pub/Sub adds when it dead-letters a message.

In other messages they are forged.
"""

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


def _refuse(_: Message, reason: str) -> None:
    """Let a request that is no message become a dead letter."""
    raise PermanentError(reason)


def serve(
    request: Request,
    function: str,
    handle: Callable[[Message], object],
    bus: Callable[[], Bus],
    *,
    handle_unreadable: Callable[[Message, str], object] = _refuse,
) -> Response:
    """Decode the request, call `handle` with the message, and return the response for Pub/Sub.

    `function` is the name in logs and dead letters. `bus` is called only if a dead letter must be
    written. `handle_unreadable` is called with a request that is no message of a legal size, as the
    data of a message, and with the reason.
    """
    json_log.configure()
    body = request.stream.read(BODY_BYTES_MAX + 1)
    try:
        message = decode(body)
    except PermanentError as error:
        reason = str(error)
        unreadable = Message(body, attributes={}, message_id="", published_at=datetime.now(UTC))
        _, status = _answer(
            unreadable, function, lambda message: handle_unreadable(message, reason), bus
        )
        # functions-framework would read the rest of the request into memory, unless the response is
        # a stream.
        return iter(()), status
    with json_log.context(function=function, message_id=message.message_id):
        return _answer(message, function, handle, bus)


def _answer(
    message: Message, function: str, handle: Callable[[Message], object], bus: Callable[[], Bus]
) -> Response:
    """Call `handle`, and return the response that its outcome means, as the module's table says."""
    try:
        handle(message)
    except RejectedError as rejected:
        words = truncate(str(rejected), LOGGED_BYTES_MAX)
        _log.info("%s", words, extra={"action": json_log.REFUSED_SUBMISSION})
    except PermanentError as error:
        return _dead_letter(message, function, str(error), bus)
    except RecursionError:
        return _dead_letter(message, function, "the message is nested too deeply", bus)
    except TemporaryError as error:
        refused = {"action": json_log.REFUSED_CALL} if isinstance(error, RefusedError) else {}
        _log.warning("message will be redelivered: %s", error, extra=refused)
        return "try again later", 503
    except Exception:
        _log.exception("%s failed on message %s", function, message.message_id)
        raise
    return "", 204


def decode(body: bytes) -> Message:
    """Return the message of a push request.

    Raises PermanentError if the body is not one, or is too large.

    `data` and `attributes` may be absent from the envelope `{"message": {"data", "attributes",
    "messageId"}}`.
    """
    if len(body) > BODY_BYTES_MAX:
        raise PermanentError(f"the push request has more than {BODY_BYTES_MAX} bytes")
    try:
        envelope = json.loads(body)
        message = envelope["message"]
        attributes = message.get("attributes") or {}
        data = base64.b64decode(message.get("data") or "", validate=True)
        message_id = message.get("messageId") or message.get("message_id") or ""
        publish_time = message.get("publishTime") or message.get("publish_time")
        published_at = datetime.now(UTC)
        if publish_time:
            published_at = datetime.fromisoformat(publish_time).astimezone(UTC)
        subscription = envelope.get("subscription") or ""
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise PermanentError("not a Pub/Sub push request") from None
    if not _has_texts_only(attributes):
        raise PermanentError("attributes of a Pub/Sub message must be strings")
    return Message(data, attributes, str(message_id), published_at, str(subscription))


def _has_texts_only(attributes: object) -> bool:
    if not isinstance(attributes, dict):
        return False
    return all(isinstance(value, str) for value in attributes.values())


def _dead_letter(message: Message, function: str, reason: str, bus: Callable[[], Bus]) -> Response:
    """Publish the message to the dead-letter topic, with the reason and with what a replay needs to
    know.

    Pub/Sub accepts every letter: large data and long values are cut, and attributes with an illegal
    name are left out, and those that no function reads if there are too many. An error is therefore
    one of the topic or its permissions, and the message is delivered again.
    """
    _log.error(
        "message cannot be handled and goes to the dead-letter topic: %s",
        truncate(reason, LOGGED_BYTES_MAX),
    )
    data = message.data
    attributes = _kept_attributes(message)
    if len(data) > LETTER_BYTES_MAX:
        attributes["cut"] = str(len(data))
        data = data[:CUT_BYTES]
    attributes["reason"] = reason
    attributes["function"] = function
    attributes["message_id"] = message.message_id
    attributes["published_at"] = message.published_at.isoformat()
    attributes["subscription"] = message.subscription.rpartition("/")[2]
    attributes = {name: truncate(value, VALUE_BYTES_MAX) for name, value in attributes.items()}
    try:
        bus().publish(topics.DEAD_LETTER, data or b"(empty)", attributes)
    except (TemporaryError, PermanentError) as error:
        _log.warning("the dead letter could not be written: %s", error)
        return "try again later", 503
    return "", 204


def _kept_attributes(message: Message) -> dict[str, str]:
    """Return the message's own attributes; if too many, those that functions read first."""
    own = [
        name
        for name in message.attributes
        if name not in ADDED and not name.startswith(DEAD_LETTER_PREFIX) and _is_legal(name)
    ]
    own.sort(key=lambda name: not name.startswith(READ_ATTRIBUTES))
    return {name: message.attributes[name] for name in own[: ATTRIBUTES_MAX - len(ADDED)]}


def _is_legal(name: str) -> bool:
    """Return whether an attribute of Pub/Sub may have this name."""
    return 0 < len(name.encode(errors="replace")) <= NAME_BYTES_MAX


def truncate(text: str, bytes_max: int) -> str:
    """Return as much of the text as has at most `bytes_max` bytes in UTF-8."""
    return text[:bytes_max].encode(errors="replace")[:bytes_max].decode(errors="ignore")
