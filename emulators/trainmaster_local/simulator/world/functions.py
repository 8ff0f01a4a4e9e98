"""The Cloud Functions: the real flows, with clocks and ports in which every call may fail.

    deliver ──► flow ──► port call ──┬── the instance crashes before the call, or after it was
                                     │   applied
                                     ├── the call fails (TemporaryError), applied or not
                                     └── the invocation is suspended: other invocations, agents
                                         and VMs continue

A suspended invocation runs the other actions *inside* its port call, so that their effects lie
between two of its own steps. This gives every interleaving in which the later invocation ends
first, without threads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.rules.admission_queue import Limits
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows import user_requests
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Bus, Fleet, Objects, Store
from trainmaster.ports.metrics import MetricReader
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.fleet import SimFleet
from trainmaster_local.simulator.world.function_ports import (
    FunctionCrashed,
    InterceptedPort,
    SimAddressBook,
    run_sequentially,
)
from trainmaster_local.simulator.world.user_actions import CANCEL, DELETE, LABEL

SUSPENDED_S: Final = (0.01, 12.0)
"""Shortest and longest time for which an invocation is suspended at a port call."""
JITTER_S: Final = 1.0
"""Longest time that a flow waits before it repeats a commit that lost a race."""
ALGORITHMS: Final = f"gs://stage/algorithms/{'0' * 64}/algorithms.whl"
"""Address of the package of the built-in algorithms. Nothing downloads it."""
PROVISION_WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The waits of `provision` between two comparisons of desired and observed VMs.

Any other wait of a flow is jitter after a lost race.
"""
USER: Final = "a user"
"""The name under which users' actions are recorded."""
USER_ACTIONS: Final = (CANCEL, DELETE, LABEL)
"""Topics that stand for calls of users."""
COMMIT: Final = "commit"
"""The store's method that changes a job."""
READ_QUEUE: Final = "admission_token"
"""The store's method that reads all live jobs for an admission pass."""


@dataclass(slots=True)
class QueueRead:
    """The last reading of the admission queue by one invocation."""

    at: float | None = None
    """Virtual time at which it began, in seconds; None: the queue was not read."""


@dataclass(frozen=True, slots=True)
class UserAction:
    """The content of a message of the topics `USER_ACTIONS`, which stand for calls of users."""

    job_id: str
    request_id: str


@dataclass(slots=True)
class Functions:
    """All functions of the installation."""

    context: Context
    store: MemoryStore
    bus: SimBus
    fleet: SimFleet
    objects: MemoryObjects
    on_change: Callable[[str, float | None], None]
    """Called after every commit: with the job's id, and when the invocation last read the admission
    queue.
    """
    limits: Limits = field(default_factory=dict)
    metrics: MetricReader | None = None
    running: int = 0
    """Invocations that have not ended, among them the suspended ones."""
    invocations: int = 0
    _instances_max: int = field(init=False)
    """Invocations that may run at the same time."""
    _handlers: dict[str, Callable[[Message], object]] = field(init=False)
    """Topic → the handler of its messages."""

    def __post_init__(self) -> None:
        faults = self.context.faults
        self._instances_max = faults.instances_max
        self._handlers = {
            **handlers_by_topic(
                self._deps,
                auth_deps=None,
                fleet_deps=self._fleet_deps,
                objects=lambda: cast("Objects", InterceptedPort(self.objects, self._intercept)),
            ),
            CANCEL: self._cancel_job,
            DELETE: self._delete_job,
            LABEL: self._change_labels,
        }

    def deliver(self, topic: str, message: Message) -> bool | None:
        """Handle one message, with the acknowledgement policy of `trainmaster.messaging.push`:
        return True to acknowledge it, False to have it redelivered, None if no instance is free.

        Any exception that the policy does not name is a bug, and is raised to the caller.
        """
        if self.running >= self._instances_max:
            return None
        self.running += 1
        self.invocations += 1
        name = topic.removeprefix("trainmaster-")
        self.context.log("invoke", name, f"#{self.invocations}")
        try:
            self._handlers[topic](message)
        except FunctionCrashed:
            self.context.log("crashed", name)
            return False
        except TemporaryError as error:
            self.context.log("retry", name, error)
            return False
        except PermanentError as error:
            if topic not in USER_ACTIONS:  # a user gets the error as the answer
                self.bus.publish(topics.DEAD_LETTER, message.data, {"function": name})
            self.context.log("rejected", name, error)
        finally:
            self.running -= 1
        return True

    def _cancel_job(self, message: Message) -> None:
        action = _parse_action(message.data)
        user_requests.cancel_job(action.job_id, USER, self._deps())

    def _delete_job(self, message: Message) -> None:
        action = _parse_action(message.data)
        user_requests.delete_job(action.job_id, action.request_id, self._deps(), by=USER)

    def _change_labels(self, message: Message) -> None:
        action = _parse_action(message.data)
        user_requests.change_labels(
            action.job_id, {"a": "b"}, action.request_id, seen=None, deps=self._deps(), by=USER
        )

    def _deps(self) -> CreationDeps:
        """Return the ports and settings of one invocation, with a clock of its own that may be
        wrong.
        """
        skew_max_s = self.context.faults.skew_s
        # Without skew, no random number is drawn.
        skew_s = self.context.between(-skew_max_s, skew_max_s) if skew_max_s else 0.0
        return CreationDeps(
            cast(
                "Store",
                InterceptedPort(self.store, partial(self._intercept, queue_read=QueueRead())),
            ),
            cast("Bus", InterceptedPort(self.bus, self._intercept)),
            clock=lambda: self.context.scheduler.clock(skew_s),
            sleep=self._sleep_of_flow,
            notifications=cast("Bus", InterceptedPort(self.bus, self._intercept)),
            limits=self.limits,
            algorithms=ALGORITHMS,
        )

    def _fleet_deps(self) -> FleetDeps:
        """Return the ports that only `provision` has: VMs, addresses and metrics."""
        fleet = cast("Fleet", InterceptedPort(self.fleet, self._intercept))
        return FleetDeps(
            fleet,
            SimAddressBook(),
            project="p",
            agent_files={},
            run_all=run_sequentially,
            metrics=self.metrics,
        )

    def _sleep_of_flow(self, seconds: float) -> None:
        """Sleep.

        Jitter, which the flow drew from a generator without a seed, is drawn from the history's
        generator.
        """
        self.context.sleep(
            seconds if seconds in PROVISION_WAITS_S else self.context.between(0, JITTER_S)
        )

    def _intercept(self, name: str, call: partial[Any], queue_read: QueueRead | None = None) -> Any:
        """Apply the call of a port with at most one fault, which one random number chooses.

        In half of the cases the call is applied before the fault, in the other half after it or not
        at all.
        """
        context = self.context
        faults = context.faults
        drawn = context.rng.random()
        if drawn < faults.crash:
            if drawn < faults.crash / 2:
                self._apply(name, call, queue_read)
            raise FunctionCrashed(name)
        drawn -= faults.crash
        if drawn < faults.temporary_error:
            if drawn < faults.temporary_error / 2:
                self._apply(name, call, queue_read)
            raise TemporaryError(f"simulated error in {name}")
        drawn -= faults.temporary_error
        if drawn >= faults.suspend:
            return self._apply(name, call, queue_read)
        if drawn < faults.suspend / 2:
            context.sleep(context.between(*SUSPENDED_S))
            return self._apply(name, call, queue_read)
        result = self._apply(name, call, queue_read)
        context.sleep(context.between(*SUSPENDED_S))
        return result

    def _apply(self, name: str, call: partial[Any], queue_read: QueueRead | None) -> Any:
        """Apply the call, and let the invariants look at every commit."""
        if name == READ_QUEUE and queue_read is not None:
            queue_read.at = self.context.now
        result = call()
        if name == COMMIT:
            entry: LedgerEntry = call.args[1]
            self.on_change(entry.job_id, queue_read.at if queue_read else None)
        return result


def _parse_action(data: bytes) -> UserAction:
    """Return the content of a message that `user_actions` has published."""
    document = json.loads(data)
    return UserAction(document["job_id"], document["request_id"])
