"""Entrances for messages: of agents, of Google Cloud, and of functions to each other."""

from __future__ import annotations

import base64
import hmac
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

from tests.fuzz.entrance import Entrance, Entrances, RefusedError
from tests.support.jobs import CHIEF
from tests.support.world import World
from trainmaster.agent.channel import datagrams
from trainmaster.messaging import agent_messages, google_events, internal_requests, push, topics
from trainmaster_local.memory.bus import Message

_TIME: Final = "2026-11-21T03:00:00Z"
_PROVISION: Final = {"version": 1, "job_id": "x", "number": 1}
_AUDIT: Final = {
    "protoPayload": {
        "methodName": "compute.instances.preempted",
        "resourceName": "projects/p/zones/z/instances/i",
    },
    "resource": {"labels": {"instance_id": "1"}},
    "logName": "l",
    "timestamp": _TIME,
}
_DATAGRAM: Final = {
    "job": "digits_1",
    "attempt": 1,
    "round": 1,
    "from": 1,
    "kind": "save",
    "serial": 1,
    "answers": False,
    "seconds": {"in": 0.5},
    "number": 1,
}


def _agent_message() -> dict[str, Any]:
    world = World()
    world.submit()
    world.deliver()
    error = {"type": "E", "message": "m", "frame": "f", "causes": ["c"]}
    metric = {"value": 1.0, "step": 3, "earlier": [{"value": 0.5, "step": 1}]}
    return {
        **world.message_fields(CHIEF),
        "cause": "process",
        "exit_status": 1,
        "error": error,
        "metric": metric,
        "tail": "t",
    }


def _push_request() -> Entrance:
    """Serve a push request. It is handled as it was sent, or one dead letter has all of it."""
    bus = World().bus
    envelope = {
        "message": {
            "data": base64.b64encode(json.dumps(_agent_message()).encode()).decode(),
            "attributes": {"identity": "a.b.c"},
            "messageId": "1",
            "publishTime": _TIME,
        },
        "subscription": "s",
    }
    handled: list[push.Message] = []

    def handle(message: push.Message) -> None:
        handled.append(message)
        agent_messages.decode_subject(message.data)
        agent_messages.decode_replica_exit(message.data)

    def read(body: bytes) -> None:
        handled.clear()
        request = SimpleNamespace(stream=SimpleNamespace(read=lambda size: body[:size]))
        answer, status = push.serve(request, "replica_exit", handle, lambda: bus)  # type: ignore[arg-type]
        assert (list(answer), status) == ([], 204), "Pub/Sub accepts each dead letter"
        sent = _sent_message(body)
        assert [(message.data, message.attributes) for message in handled] == sent
        letters = bus.drain()
        if letters:
            (letter,) = letters
            _judge_letter(letter, *(sent or [(body[: push.BODY_BYTES_MAX + 1], {})])[0])
            raise RefusedError("dead letter", letter.attributes["reason"])

    return Entrance(read, [envelope], memory_mib=100)  # only Pub/Sub makes envelopes


def _sent_message(body: bytes) -> list[tuple[bytes, dict[str, str]]]:
    """Return data and attributes of the message in a push request; empty: it is no push request.

    Source: Pub/Sub, "Receive push messages". A publish time is the only other field whose value
    makes a difference.
    """
    try:
        message = json.loads(body)["message"]
        attributes = message.get("attributes") or {}
        time = message.get("publishTime") or message.get("publish_time")
        data = base64.b64decode(message.get("data") or "", validate=True)
        datetime.fromisoformat(time or _TIME).astimezone(UTC)
        are_texts = isinstance(attributes, dict) and all(
            isinstance(value, str) for value in attributes.values()
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return []
    is_whole = len(body) <= push.BODY_BYTES_MAX
    return [(data, attributes)] if are_texts and is_whole else []


def _judge_letter(letter: Message, data: bytes, attributes: Mapping[str, str]) -> None:
    """Check that an operator finds in a dead letter what was sent, and only that.

    `data`, `attributes`: of the message, or the whole request if it has none.
    """
    is_cut = len(data) > push.LETTER_BYTES_MAX
    assert letter.topic == topics.DEAD_LETTER
    assert letter.data == ((data[: push.CUT_BYTES] if is_cut else data) or b"(empty)")
    assert letter.attributes["function"] == "replica_exit", "no sender names the function"
    assert letter.attributes["reason"]
    assert ("cut" in letter.attributes) == is_cut
    own = {name: value for name, value in letter.attributes.items() if name not in push.ADDED}
    assert all(attributes[name].startswith(value) for name, value in own.items())
    if len(attributes) < push.ATTRIBUTES_MAX - len(push.ADDED):
        assert ("identity" in own) == ("identity" in attributes)


def _replica_exit() -> Entrance:
    return Entrance(agent_messages.decode_replica_exit, [_agent_message()])


def _vm_ready() -> Entrance:
    message = _agent_message()
    ended = {
        "attempt": 1,
        "incarnation": 1,
        "at": message["at"],
        "cause": "process",
        "exit_status": 1,
    }
    ready = {**message, "incarnation": 2, "ended": ended, "left_peers": True, "finding": "f"}
    return Entrance(agent_messages.decode_vm_ready, [ready])


def _maintenance() -> Entrance:
    notice = {**_agent_message(), "cause": "notice", "unanswered": [1], "save_number": 1}
    return Entrance(google_events.decode_maintenance, [notice, _AUDIT])


def _storage_notification() -> Entrance:
    def read(data: bytes) -> object:
        generation = data[-9:].decode(errors="replace") if data[:1] == b"9" else "1"
        attributes = {"bucketId": "b", "objectId": "jobs/x", "objectGeneration": generation}
        return google_events.decode_upload(attributes, data)

    return Entrance(read, [{"timeCreated": _TIME}, b"99999999999999999"])


def _received(data: bytes) -> None:
    """Read a datagram of a stranger, and the same bytes as the body of a member's."""
    key = b"k" * 32
    body = data[: datagrams.BYTES_MAX]
    assert datagrams.decode(data, "digits_1", key) is None, "nobody has the key"
    signed = datagrams.MAGIC + hmac.digest(key, body, "sha256") + body
    found = datagrams.decode(signed, "digits_1", key)
    if found:
        assert all(math.isfinite(value) for value in found.seconds.values())


MESSAGES: Final[Entrances] = {
    "push request": _push_request,
    "agent message": _replica_exit,
    "vm-ready message": _vm_ready,
    "maintenance message": _maintenance,
    "datagram": lambda: Entrance(_received, [_DATAGRAM]),
    "storage notification": _storage_notification,
    "internal message": lambda: Entrance(internal_requests.decode_provision, [_PROVISION]),
    "tuning request": lambda: Entrance(internal_requests.decode_tune, [_PROVISION]),
}
