"""The events that this replica reports: vm-ready, replica-exit and maintenance (docs/interfaces.md
section 2).

`RunState` decides when; here is what the messages contain. The key of an event is the incarnation,
which is one execution of the program. Under a directive to hold, a replica reports vm-ready and
waits until all members of its gang, which train together, are ready.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.reporting.publisher import Event, Outbox, Publisher
from trainmaster.agent.reporting.serial_console import Console

VERSION = 1


class Repeats(NamedTuple):
    """Times between two repeats of an event that no directive has answered."""

    first_s: float
    longest_s: float


NO_REPEATS = Repeats(first_s=0.0, longest_s=0.0)
EXIT_REPEATS = Repeats(first_s=600.0, longest_s=600.0)  # a replica waits idle for the answer
RUNNING_REPEATS = Repeats(first_s=600.0, longest_s=21_600.0)  # a program that runs needs no answer
HELD_REPEATS = Repeats(first_s=20.0, longest_s=600.0)  # all members wait for the last vm-ready


class EventReporter:
    """Publishes events in the background.

    Once Pub/Sub has accepted an event, the function `accepted` that was given with it is called on
    the main thread.
    """

    def __init__(
        self, identity: AgentIdentity, publisher: Publisher, console: Console, inbox: Inbox
    ) -> None:
        self._identity = identity
        self._index = identity.index
        self._inbox = inbox
        self._clock = inbox.clock
        self._incarnation_events = Outbox(publisher, console, inbox.new_condition())
        """vm-ready and replica-exit."""
        self._maintenance_events = Outbox(publisher, console, inbox.new_condition())
        """A queue of their own: maintenance must not wait for other events."""
        self._started_at = self.now_text()
        self.finding = ""
        """The fault of this machine that the preflight has found; empty: none."""

    def start(self) -> None:
        """Start the threads that publish."""
        self._inbox.start_thread(self._incarnation_events.run)
        self._inbox.start_thread(self._maintenance_events.run)

    def report_ready(
        self,
        key: IncarnationKey,
        accepted: Callable[[], None] = lambda: None,
        *,
        ended: Mapping[str, object] | None = None,
        is_held: bool = False,
        left_peers: bool = False,
    ) -> None:
        """Report a vm-ready.

        `ended`: fields of the exit of the previous program, if it ended by itself. `is_held`: the
        program does not start yet. `left_peers`: the ranks of the previous program had exited 0
        when a directive ended it, and its launcher waited for those of other machines.
        """
        details: dict[str, object] = {"agent_started_at": self._started_at}
        if ended:
            details["ended"] = ended
        if left_peers:
            details["left_peers"] = True
        if self.finding:
            details["finding"] = self.finding
        repeats = HELD_REPEATS if is_held else RUNNING_REPEATS
        self._incarnation_events.put(self._event("vm_ready", key, details, accepted, repeats))

    def report_exit(
        self, key: IncarnationKey, details: Mapping[str, object], accepted: Callable[[], None]
    ) -> None:
        """Report a replica-exit; `details` holds the fields besides the replica's identity."""
        self._incarnation_events.put(
            self._event("replica_exit", key, details, accepted, EXIT_REPEATS)
        )

    def report_maintenance(
        self, key: IncarnationKey, cause: str, accepted: Callable[[], None]
    ) -> None:
        """Report that this VM is about to stop. `cause`: `preemption` or `maintenance`."""
        self._maintenance_events.put(self._event("maintenance", key, {"cause": cause}, accepted))

    def report_notice(
        self, key: IncarnationKey, gives_up_s: float, number: int, unanswered: Sequence[int]
    ) -> None:
        """Report that the end of this VM is announced, and that the members of its round save.

        `gives_up_s`: time until the VM is given up. `unanswered`: numbers of the members that did
        not answer the request to save.
        """
        details = {
            "cause": "notice",
            "gives_up_at": utc_text(self._clock.now_s() + gives_up_s),
            "save_number": number,
            "unanswered": list(unanswered),
        }
        self._maintenance_events.put(self._event("maintenance", key, details, lambda: None))

    def drop_before(self, key: IncarnationKey) -> None:
        """Drop events of earlier incarnations.

        Maintenance of the VM still matters, so it is kept.
        """
        self._incarnation_events.drop_before(key)

    def stop_repeating(self) -> None:
        """Do not repeat the latest vm-ready: a directive has answered it."""
        self._incarnation_events.stop_repeating()

    def flush(self, timeout: float) -> None:
        """Wait until the incarnation events are accepted, at most `timeout` seconds."""
        self._incarnation_events.flush(timeout)

    def now_text(self) -> str:
        """Return the time in RFC 3339 with milliseconds."""
        return utc_text(self._clock.now_s())

    def _event(
        self,
        topic: str,
        key: IncarnationKey,
        details: Mapping[str, object],
        accepted: Callable[[], None],
        repeats: Repeats = NO_REPEATS,
    ) -> Event:
        """Return an event of this replica. `details`: the fields that only this event has."""
        config = self._identity.config
        body: dict[str, object] = {
            "version": VERSION,
            "job_id": config.job_id,
            "attempt": key.attempt,
            "task_type": config.task_type,
            "task_index": self._index,
            "incarnation": key.incarnation,
            "vm_generation": config.vm_generation,
            "vm": asdict(self._identity.vm),
            "at": self.now_text(),
        }
        if self._identity.host is not None:
            body["host"] = self._identity.host.number
        audience = [
            "trainmaster",
            config.project,
            config.job_id,
            str(key.attempt),
            config.task_type,
            str(self._index),
            str(key.incarnation),
        ]
        if config.tenure_key:  # jobs share this VM: none may use the token of another one
            audience.append(config.tenure_key)
        return Event(
            topic=config.topics[topic],
            key=key,
            body={**body, **details},
            audience="/".join(audience),
            accepted=functools.partial(self._inbox.post, accepted),
            is_final=topic == "replica_exit",
            repeat_s=repeats.first_s,
            repeat_max_s=repeats.longest_s,
        )


def utc_text(at: float) -> str:
    """Return a time, in seconds since 1970, in RFC 3339 with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
