"""Telling Pub/Sub: events that arrive in order, again and again until they are accepted."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.agent.http.calls import HttpError, backoffs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from shared.agent.control.vm_config import Key
    from shared.agent.http.metadata_server import Google, Metadata
    from shared.agent.reporting.serial_console import Console
ATTRIBUTE_BYTES = 1024  # Source: Pub/Sub's limits, "Attribute value size"; a VM's token is longer
LOG_S = 3.0  # for the log before an exit is told: short of what a shutdown leaves for both


@dataclass(frozen=True)
class Event:
    """A fact to be told. ``key`` is the incarnation it speaks of."""

    topic: str
    key: Key
    body: Mapping[str, object]
    audience: str
    accepted: Callable[[], None]
    is_last_word: bool = False  # of that incarnation: the log comes first, since who hears of it may delete the VM


class Publisher:
    """Tells Pub/Sub one event, signed with the VM's identity where there is one."""

    def __init__(self, pubsub: Google, metadata: Metadata, console: Console) -> None:
        self._pubsub = pubsub
        self._metadata = metadata
        self._console = console
        self._unsigned = False

    def publish(self, event: Event) -> None:
        """Raises HttpError."""
        identity = self._metadata.identity_token(event.audience)
        if identity is None and not self._unsigned:
            self._unsigned = True
            self._console.say("The metadata server refuses an identity token: publishing without one.")
        message = {
            "data": base64.b64encode(json.dumps(event.body).encode()).decode(),
            "attributes": in_pieces(identity or ""),
        }
        body = json.dumps({"messages": [message]}).encode()
        self._pubsub.call(f"/v1/{event.topic}:publish", timeout=10.0, body=body)


def in_pieces(token: str) -> dict[str, str]:
    """`identity`, `identity-2`, …: as many as it takes."""
    cut = [token[start : start + ATTRIBUTE_BYTES] for start in range(0, len(token), ATTRIBUTE_BYTES)]
    return {"identity" if nth == 1 else f"identity-{nth}": piece for nth, piece in enumerate(cut, start=1)}


class Lane:
    """Events that must arrive in order: the head is told again and again until it is accepted or dropped."""

    def __init__(self, publisher: Publisher, console: Console) -> None:
        self._publisher = publisher
        self._console = console
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()

    def put(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def drop_before(self, key: Key) -> None:
        """Forgets what is not told yet about incarnations before this one."""
        with self._changed:
            kept = [event for event in self._events if event.key >= key]
            self._events = deque(kept)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Tries at once whatever is waiting; whether all of it was accepted in time."""
        with self._changed:
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._events, timeout)

    def carry(self) -> NoReturn:
        """Runs in a thread of its own, for ever."""
        waits = backoffs(30.0)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._events))
                head = self._events[0]
            if head.is_last_word:
                self._console.flush(LOG_S)
            try:
                self._publisher.publish(head)
            except HttpError as error:
                wait = next(waits)
                self._console.say(f"Publishing to {head.topic} failed ({error}); again in {wait:.1f} s.")
                with self._changed:
                    if self._events and self._events[0] is head:
                        self._changed.wait(wait)
                continue
            waits = backoffs(30.0)
            head.accepted()  # before it is gone from here: who has flushed has also heard of it
            with self._changed:
                if self._events and self._events[0] is head:
                    self._events.popleft()
                self._changed.notify_all()
