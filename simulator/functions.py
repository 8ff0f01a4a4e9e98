"""The functions: the real flows, each invocation with clocks and ports of its own in which anything may break.

    deliver ──► flow ──► port call ──┬── dies before it, or after it was applied
                                     ├── fails (TemporaryError), applied or not
                                     └── is suspended: other invocations, agents and machines go on meanwhile

Suspending runs the others *inside* the call, so that what they do lies between two steps of this one: every
interleaving in which the later one ends first, without threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from shared import topics, wire
from shared.core.events import CancelRequested
from shared.errors import PermanentError, TemporaryError
from shared.flows import maintenance, provision, replica_exit, submit, sweep, vm_ready
from shared.flows.record import Deps, record
from shared.memory.store import MemoryStore
from shared.ports import Bus, Fleet, Store
from simulator.bus import SimBus
from simulator.context import Context
from simulator.machines import SimFleet

INSTANCES_MAX: Final = 4
"""Invocations at once; Pub/Sub tries again when none is free."""
SUSPENDED_S: Final = (0.01, 12.0)
JITTER_S: Final = 1.0
WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""What `provision` waits between two looks. Any other wait is the jitter after a lost race."""
CANCEL: Final = "cancel"
"""A topic of the simulator's own: a user's command is not lost either."""

CHANGES: Final = frozenset({"commit", "mark_done"})


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

    def __init__(self, port: object, step: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._port, self._step = port, step

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        return lambda *arguments, **named: self._step(name, partial(method, *arguments, **named))


@dataclass(slots=True)
class Functions:
    """`changed` is called after every step that may have changed the stored state."""

    context: Context
    store: MemoryStore
    bus: SimBus
    fleet: SimFleet
    changed: Callable[[], None]
    running: int = 0
    invocations: int = 0
    _handlers: dict[str, Callable[[bytes, Mapping[str, str], Deps], object]] = field(init=False)

    def __post_init__(self) -> None:
        self._handlers = {
            topics.SUBMIT: lambda data, attributes, deps: submit.handle(data, attributes.get("source"), deps),
            topics.VM_READY: lambda data, _, deps: vm_ready.handle(wire.vm_ready(data), deps),
            topics.REPLICA_EXIT: lambda data, _, deps: replica_exit.handle(wire.replica_exit(data), deps),
            topics.MAINTENANCE: lambda data, _, deps: maintenance.handle(wire.maintenance(data), deps),
            topics.PROVISION: lambda data, _, deps: provision.handle(wire.provision(data), self._machines(), deps),
            topics.SWEEP: lambda _, __, deps: sweep.handle(deps),
            CANCEL: lambda data, _, deps: record(
                data.decode(), CancelRequested(data.decode(), "a user", deps.clock()), deps
            ),
        }

    def deliver(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> bool | None:
        """As `shared.push` answers. Any other exception is a bug, and goes all the way up."""
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
        )

    def _machines(self) -> provision.Machines:
        fleet = cast("Fleet", Interposed(self.fleet, self._step))
        return provision.Machines(fleet, Addresses(), "p", {}, in_turn)

    def _sleep_of_flow(self, seconds: float) -> None:
        """The jitter after a lost race comes from a generator of the flow's own, which no seed rules: drawn anew."""
        self.sleep(seconds if seconds in WAITS_S else self.context.between(0, JITTER_S))

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
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
            raise TemporaryError(f"simulated trouble with {name}")
        drawn -= faults.trouble
        if drawn >= faults.suspend:
            return self._apply(name, call)
        if drawn < faults.suspend / 2:
            self.sleep(context.between(*SUSPENDED_S))
            return self._apply(name, call)
        result = self._apply(name, call)
        self.sleep(context.between(*SUSPENDED_S))
        return result

    def _apply(self, name: str, call: Callable[[], Any]) -> Any:
        result = call()
        if name in CHANGES:
            self.changed()
        return result
