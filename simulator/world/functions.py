"""The functions: the real flows, each invocation with clocks and ports of its own in which anything may break.

    deliver ──► flow ──► port call ──┬── dies before it, or after it was applied
                                     ├── fails (TemporaryError), applied or not
                                     └── is suspended: other invocations, agents and machines go on meanwhile

Suspending runs the others *inside* the call, so that what they do lies between two steps of this one: every
interleaving in which the later one ends first, without threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from shared.core.ledger import LedgerEntry
from shared.core.rules.admission_queue import Limits
from shared.errors import PermanentError, TemporaryError
from shared.flows import (
    cancel,
    delete,
    labels,
    maintenance,
    provision,
    replica_exit,
    submit,
    sweep,
    upload,
    vm_ready,
)
from shared.flows.record import Deps
from shared.memory.objects import MemoryObjects
from shared.memory.store import MemoryStore
from shared.messaging import codec, topics
from shared.ports import Bus, Fleet, Objects, Store
from simulator.world.bus import SimBus
from simulator.world.context import Context
from simulator.world.fleet import SimFleet
from simulator.world.user_actions import CANCEL, DELETE, LABEL

INSTANCES_MAX: Final = 4
"""Invocations at once; Pub/Sub tries again when none is free."""
SUSPENDED_S: Final = (0.01, 12.0)
JITTER_S: Final = 1.0
WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""What `provision` waits between two looks. Any other wait is the jitter after a lost race."""
CHANGE: Final = "commit"


class Died(BaseException):
    """The instance is gone in the middle of it. Not an Exception: no flow can catch it."""


class Addresses:
    def address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}:2222"


def in_turn(tasks: Sequence[Callable[[], None]]) -> None:
    """All to their end, then the first error: what `provision.in_threads` promises."""
    first: Exception | None = None
    for task in tasks:
        try:
            task()
        except (TemporaryError, PermanentError) as error:
            first = first or error
    if first:
        raise first


class Interposed:
    """A port whose every call goes through `step`."""

    def __init__(self, port: object, step: Callable[[str, partial[Any]], Any]) -> None:
        self._port, self._step = port, step

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        return lambda *arguments, **named: self._step(name, partial(method, *arguments, **named))


@dataclass(slots=True)
class Functions:
    """`changed` is called after every step that may have changed a job's stored state, with the job's id."""

    context: Context
    store: MemoryStore
    bus: SimBus
    fleet: SimFleet
    objects: MemoryObjects
    changed: Callable[[str], None]
    limits: Limits = field(default_factory=dict)
    running: int = 0
    invocations: int = 0
    _handlers: dict[str, Callable[[bytes, Mapping[str, str], Deps], object]] = field(init=False)

    def __post_init__(self) -> None:
        self._handlers = {
            topics.SUBMIT: lambda data, attributes, deps: submit.handle(data, attributes.get("source"), deps),
            topics.VM_READY: lambda data, _, deps: vm_ready.handle(codec.vm_ready(data), deps),
            topics.REPLICA_EXIT: lambda data, _, deps: replica_exit.handle(codec.replica_exit(data), deps),
            topics.MAINTENANCE: lambda data, _, deps: maintenance.handle(codec.maintenance(data), deps),
            topics.PROVISION: lambda data, _, deps: provision.handle(codec.provision(data), self._machines(), deps),
            topics.SWEEP: lambda _, __, deps: sweep.handle(deps),
            topics.UPLOAD: lambda data, attributes, deps: upload.handle(
                codec.uploaded(attributes, data), cast("Objects", Interposed(self.objects, self._step)), deps
            ),
            CANCEL: lambda data, _, deps: cancel.handle(_asked(data)[0], "a user", deps),
            DELETE: lambda data, _, deps: delete.handle(*_asked(data), deps),
            LABEL: lambda data, _, deps: labels.handle(_asked(data)[0], {"a": "b"}, _asked(data)[1], None, deps),
        }

    def deliver(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> bool | None:
        """As `shared.messaging.push` answers. Any other exception is a bug, and goes all the way up."""
        if self.running >= INSTANCES_MAX:
            return None
        self.running += 1
        self.invocations += 1
        name = topic.removeprefix("trainmaster-")
        self.context.say("begin", name, f"#{self.invocations}")
        try:
            self._handlers[topic](data, attributes, self._deps())
        except Died:
            self.context.say("died", name)
            return False
        except TemporaryError as error:
            self.context.say("again", name, error)
            return False
        except PermanentError as error:
            self.bus.publish(topics.DEAD_LETTER, data, {"function": name})
            self.context.say("refused", name, error)
        finally:
            self.running -= 1
        return True

    def sleep(self, seconds: float) -> None:
        self.context.scheduler.run_until(self.context.now + seconds)

    def _deps(self) -> Deps:
        skew_s = self.context.faults.skew_s
        skew_s = self.context.between(-skew_s, skew_s) if skew_s else 0.0
        return Deps(
            cast("Store", Interposed(self.store, self._step)),
            cast("Bus", Interposed(self.bus, self._step)),
            clock=lambda: self.context.scheduler.clock(skew_s),
            sleep=self._sleep_of_flow,
            limits=self.limits,
        )

    def _machines(self) -> provision.Machines:
        fleet = cast("Fleet", Interposed(self.fleet, self._step))
        return provision.Machines(fleet, Addresses(), "p", {}, in_turn)

    def _sleep_of_flow(self, seconds: float) -> None:
        """The jitter after a lost race comes from a generator of the flow's own, which no seed rules: drawn anew."""
        self.sleep(seconds if seconds in WAITS_S else self.context.between(0, JITTER_S))

    def _step(self, name: str, call: partial[Any]) -> Any:
        context, faults = self.context, self.context.faults
        drawn = context.rng.random()
        if drawn < faults.crash:
            if drawn < faults.crash / 2:
                self._apply(name, call)
            raise Died(name)
        drawn -= faults.crash
        if drawn < faults.trouble:
            if drawn < faults.trouble / 2:
                self._apply(name, call)
            raise TemporaryError(f"simulated errors with {name}")
        drawn -= faults.trouble
        if drawn >= faults.suspend:
            return self._apply(name, call)
        if drawn < faults.suspend / 2:
            self.sleep(context.between(*SUSPENDED_S))
            return self._apply(name, call)
        result = self._apply(name, call)
        self.sleep(context.between(*SUSPENDED_S))
        return result

    def _apply(self, name: str, call: partial[Any]) -> Any:
        result = call()
        if name == CHANGE:
            entry: LedgerEntry = call.args[1]
            self.changed(entry.job_id)
        return result


def _asked(data: bytes) -> tuple[str, str]:
    said = json.loads(data)
    return said["job_id"], said["what"]
