"""Publishing events to Pub/Sub in order. Each event is tried until Pub/Sub accepts it. The latest
one is then repeated until a directive answers it.

`events.py` makes the events. A directive, in the VM's metadata, is the control plane's order to run
an incarnation, which is one execution of the program; it answers all events of earlier ones.
"""

from __future__ import annotations

import base64
import functools
import json
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import NoReturn

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.serial_console import Console

ATTRIBUTE_BYTES = 1024
"""Source: Pub/Sub's limits, "Attribute value size". A VM's identity token is longer."""
LOG_FLUSH_MAX_S = 120.0
"""For the log before an exit is published: the control plane may delete the VM then.

Only a program that printed faster than Cloud Logging accepts needs more than a moment.
"""
PUBLISH_S = 10.0  # timeout of one try
RETRY_MAX_S = 30.0  # longest wait between two tries of an event
JITTER = (0.8, 1.2)  # smallest and largest factor of the time between two repeats
PROBLEM_CHARS = 200
"""Longest text of the reason why Cloud Logging does not accept the log."""


@dataclass(frozen=True)
class Event:
    """An event to publish."""

    topic: str
    """Full name of the Pub/Sub topic."""
    key: IncarnationKey
    """The incarnation (execution of the program) that the event is about."""
    body: Mapping[str, object]
    """The message as a JSON object."""
    audience: str
    """Audience of the identity token that signs the event."""
    accepted: Callable[[], None]
    """Called once Pub/Sub has the event."""
    is_final: bool = False
    """The last event of its incarnation.

    The log is flushed first, because the control plane may delete the VM.
    """
    repeat_s: float = 0.0
    """Time until the event is repeated, unless a directive has answered it; 0: it is not repeated.
    """
    repeat_max_s: float = 0.0
    """The longest time between two repeats. Each time is twice as long as the one before."""


class Publisher:
    """Publishes one event, signed with the VM's identity if it has one."""

    def __init__(self, pubsub: GoogleApi, metadata: MetadataServer, console: Console) -> None:
        self._pubsub = pubsub
        self._metadata = metadata
        self._console = console
        self._warned_unsigned = False

    def publish(self, event: Event) -> None:
        """Publish the event. Raises HttpError."""
        token = self._metadata.identity_token(event.audience)
        if token is None and not self._warned_unsigned:
            self._warned_unsigned = True
            self._console.log(
                "The metadata server issues no identity token: publishing without one."
            )
        message = {
            "data": base64.b64encode(json.dumps(event.body).encode()).decode(),
            "attributes": split_token(token or ""),
        }
        body = json.dumps({"messages": [message]}).encode()
        self._pubsub.call(f"/v1/{event.topic}:publish", timeout=PUBLISH_S, body=body)


def split_token(token: str) -> dict[str, str]:
    """Split a token into as many attributes as it takes: `identity`, `identity-2`, …"""
    attributes: dict[str, str] = {}
    for start in range(0, len(token), ATTRIBUTE_BYTES):
        name = f"identity-{len(attributes) + 1}" if attributes else "identity"
        attributes[name] = token[start : start + ATTRIBUTE_BYTES]
    return attributes


class Outbox:
    """Events that must arrive in order: the first one is repeated until it is accepted or dropped.

    Pub/Sub may accept an event that the control plane then loses, for example when a bad release
    makes it a dead letter. The latest accepted event is therefore published again until a directive
    answers it, if it has a `repeat_s`. A repeated event costs the control plane one read.
    """

    def __init__(
        self, publisher: Publisher, console: Console, changed: threading.Condition
    ) -> None:
        """`changed` is notified whenever the events change."""
        self._publisher = publisher
        self._console = console
        self._changed = changed
        self._events: deque[Event] = deque()
        self._latest: Event | None = None
        """The latest accepted event, until a directive of a later incarnation answers it."""
        self._repeats: Iterator[float] = iter(())
        """Times until the next repeats of the latest event, in seconds."""

    def put(self, event: Event) -> None:
        """Publish an event after those that were put before it."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def drop_before(self, key: IncarnationKey) -> None:
        """Drop events of incarnations before this one, whether they were published or not."""
        with self._changed:
            self._events = deque(event for event in self._events if event.key >= key)
            if self._latest is not None and self._latest.key < key:
                self._latest = None
            self._changed.notify_all()

    def stop_repeating(self) -> None:
        """Do not repeat what was accepted: a directive has answered it."""
        with self._changed:
            self._latest = None
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Try to publish now what is queued; return whether all of it was accepted within `timeout`
        seconds.
        """
        with self._changed:
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._events, timeout)

    def run(self) -> NoReturn:
        """Publish without end, in its own thread."""
        waits = backoffs(RETRY_MAX_S)
        while True:
            head = self._next_event()
            if head is None:
                self._repeat_latest()
                continue
            if head.is_final:
                self._console.flush(LOG_FLUSH_MAX_S, functools.partial(self._is_dropped, head))
                if self._is_dropped(head):
                    continue
            try:
                self._publisher.publish(self._with_unlogged(head))
            except HttpError as error:
                self._wait_after_failure(head, error, next(waits))
            else:
                waits = backoffs(RETRY_MAX_S)
                self._on_accepted(head)

    def _with_unlogged(self, event: Event) -> Event:
        """Add to an exit the number of lines that Cloud Logging refuses, and its reason.

        The log itself may never show that they are missing. Lines that are only late are not
        counted: they arrive after the exit, or the log says how many are missing.
        """
        unlogged = self._console.unlogged()
        has_refused_lines = bool(unlogged.lines and unlogged.problem)
        if not event.is_final or not has_refused_lines:
            return event
        more = {"unlogged_lines": unlogged.lines, "log_problem": unlogged.problem[:PROBLEM_CHARS]}
        return replace(event, body={**event.body, **more})

    def _wait_after_failure(self, head: Event, error: HttpError, wait_s: float) -> None:
        self._console.log(
            f"Publishing to {head.topic} failed ({error}); trying again in {wait_s:.1f} s."
        )
        with self._changed:
            if self._is_dropped(head):
                return
            if error.status == HTTPStatus.BAD_REQUEST:
                # Refused for what it contains: move it to the end, so that later events pass.
                self._events.rotate(-1)
            self._changed.wait(wait_s)

    def _is_dropped(self, head: Event) -> bool:
        """Whether the event that was the first in the queue is not to be published any more."""
        with self._changed:
            return not self._events or self._events[0] is not head

    def _on_accepted(self, event: Event) -> None:
        # Before the event leaves the queue: when `flush` returns, `accepted` has been called.
        event.accepted()
        with self._changed:
            if event in self._events:
                self._events.remove(event)
                self._latest = event
                self._repeats = iter(())
                if event.repeat_s:
                    self._repeats = repeat_intervals(event.repeat_s, event.repeat_max_s)
            self._changed.notify_all()

    def _next_event(self) -> Event | None:
        """Wait for an event. None: it is time to repeat the latest one."""
        with self._changed:
            while not self._events:
                latest = self._latest
                wait = next(self._repeats, None) if latest is not None else None
                is_changed = self._changed.wait_for(
                    lambda: bool(self._events) or self._latest is not latest,  # noqa: B023
                    wait,
                )
                if not is_changed:
                    return None
            return self._events[0]

    def _repeat_latest(self) -> None:
        """Publish the latest event once more. A failure is left to the next repeat."""
        with self._changed:
            latest = self._latest
        if latest is None:
            return
        try:
            self._publisher.publish(self._with_unlogged(latest))
        except HttpError as error:
            self._console.log(f"Repeating an event to {latest.topic} failed ({error}).")


def repeat_intervals(first_s: float, max_s: float) -> Iterator[float]:
    """Yield the times between repeats without end, with jitter, so that VMs do not repeat in
    step.
    """
    wait = first_s
    while True:
        yield wait * random.uniform(*JITTER)  # noqa: S311 - jitter need not be secret
        wait = min(2 * wait, max_s)
