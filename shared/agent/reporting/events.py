"""What this replica tells: vm-ready, replica-exit and maintenance, as docs/interfaces.md section 2 has them."""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING

from shared.agent.http.calls import utc_now
from shared.agent.reporting.publisher import Event, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.agent.control.inbox import Inbox
    from shared.agent.control.vm_config import Key, ReplicaId
    from shared.agent.reporting.publisher import Publisher
    from shared.agent.reporting.serial_console import Console

VERSION = 1


def nothing() -> None:
    """For an event whose acceptance changes nothing here."""


class Report:
    """Everything it is told goes out in the background; `accepted` is posted to the inbox once Pub/Sub has it."""

    def __init__(self, replica_id: ReplicaId, publisher: Publisher, console: Console, inbox: Inbox) -> None:
        self._seat = replica_id
        self._index = replica_id.index
        self._inbox = inbox
        self._life = Lane(publisher, console)  # vm-ready and replica-exit, in order
        self._faults = Lane(publisher, console)  # maintenance: waits for nobody

    def start(self) -> None:
        self._inbox.thread(self._life.carry)
        self._inbox.thread(self._faults.carry)

    def ready(self, key: Key) -> None:
        self._life.put(self._event("vm_ready", key, {}, nothing))

    def exit(self, key: Key, fact: Mapping[str, object], accepted: Callable[[], None]) -> None:
        self._life.put(self._event("replica_exit", key, fact, accepted))

    def fault(self, key: Key, cause: str, accepted: Callable[[], None]) -> None:
        self._faults.put(self._event("maintenance", key, {"cause": cause}, accepted))

    def drop_before(self, key: Key) -> None:
        """A incarnation that is over is no news; the fault of a machine is, whoever incarnations on it now."""
        self._life.drop_before(key)

    def flush(self, timeout: float) -> None:
        self._life.flush(timeout)

    def _event(self, topic: str, key: Key, fact: Mapping[str, object], accepted: Callable[[], None]) -> Event:
        gang = self._seat.gang
        body: dict[str, object] = {
            "version": VERSION,
            "job_id": gang.job_id,
            "attempt": key.attempt,
            "task_type": gang.task_type,
            "task_index": self._index,
            "incarnation": key.incarnation,
            "vm_generation": gang.vm_generation,
            "vm": asdict(self._seat.vm),
            "at": utc_now(),
        }
        if self._seat.host is not None:
            body["host"] = self._seat.host.number
        path = (gang.project, gang.job_id, key.attempt, gang.task_type, self._index, key.incarnation)
        return Event(
            topic=gang.topics[topic],
            key=key,
            body={**body, **fact},
            audience="/".join(["trainmaster", *map(str, path)]),
            accepted=functools.partial(self._inbox.post, accepted),
            is_last_word=topic == "replica_exit",
        )
