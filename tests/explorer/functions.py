"""Pub/Sub and the Cloud Functions: the real flows over the memory store."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from tests.explorer.world import CrashedError, Port, World
from tests.unit.cost.price_lists import price_list
from trainmaster.core.model.tuning import TrialState, Tuning
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows import user_requests
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Bus, Fleet, Objects, Store, Suggester
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore

if TYPE_CHECKING:
    from tests.explorer.cloud import Cloud
    from trainmaster.core.ledger import LedgerEntry

USER: Final = "a user"
CANCEL: Final = "cancel"
DELETE: Final = "delete"
LABEL: Final = "label"
RELEASE: Final = "release"
USER_REQUESTS: Final = (CANCEL, DELETE, LABEL, RELEASE)
"""Topics that stand for calls of the API about a job, which the user repeats until they succeed."""
DELIVERIES_MAX: Final = 100
LATE_S: Final = (1.0, 200.0)
DELIVERY_S: Final = (0.02, 0.5)
REQUESTS: Final = frozenset({topics.PROVISION, topics.TUNE, topics.SWEEP})
REPEATED: Final = (
    topics.SUBMIT,
    topics.VM_READY,
    topics.REPLICA_EXIT,
    topics.MAINTENANCE,
    topics.SYSTEM_EVENTS,
)
"""What docs/runbooks.md lets Pub/Sub deliver again after the database was restored."""
AGENT_EVENTS: Final = frozenset({topics.VM_READY, topics.REPLICA_EXIT, topics.MAINTENANCE})


class Functions:
    """All functions of the installation. Implements `trainmaster.ports.Bus`."""

    def __init__(
        self,
        world: World,
        store: MemoryStore,
        cloud: Cloud,
        on_commit: Callable[[LedgerEntry], None],
    ) -> None:
        self._world, self._on_commit = world, on_commit
        self.store, self.cloud = store, cloud
        self.down_until_s = 0.0
        """Until when no function is available, and messages wait."""
        self._published = 0
        self._kept: list[tuple[float, str, Message]] = []
        """What Pub/Sub can deliver again, if the database is restored in this history."""
        self.objects = MemoryObjects()
        self._handlers: dict[str, Callable[[Message], object]] = {
            **handlers_by_topic(
                self._deps,
                auth_deps=None,
                fleet_deps=self._fleet_deps,
                objects=lambda: cast("Objects", Port(world, self.objects)),
                suggester=lambda: cast("Suggester", Port(world, Suggestions(world))),
            ),
            CANCEL: self._cancel_job,
            DELETE: self._delete_job,
            LABEL: self._change_labels,
            RELEASE: self._release_machines,
        }

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Publish one message, and return when it is stored.

        Raises TemporaryError if that is uncertain; the message may then still have been stored.
        """
        world = self._world
        profile = world.profile
        if topic not in self._handlers:
            return
        if world.chance(self._loss_probability(topic)):
            world.log("lost message", topic)
            return
        self._published += 1
        message = Message(data, attributes, str(self._published), world.clock())
        if profile.restores and topic in REPEATED:
            self._kept.append((world.now_s, topic, message))
        for _ in range(2 if world.chance(profile.duplicate) else 1):
            delay_s = world.between(LATE_S if world.chance(profile.late) else DELIVERY_S)
            world.after(delay_s, self._deliver, topic, message, 1)

    def _loss_probability(self, topic: str) -> float:
        profile = self._world.profile
        if topic in REQUESTS:
            return profile.lost
        if topic in AGENT_EVENTS:
            return profile.lost_event
        return 0.0

    def repeat(self, since_s: float) -> None:
        """Deliver again what was published since then."""
        for published_s, topic, message in self._kept:
            if published_s >= since_s:
                self._world.within(DELIVERY_S, self._deliver, topic, message, 1)

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in as few requests as possible."""
        for data in messages:
            self.publish(topic, data, {})

    def _deliver(self, topic: str, message: Message, attempt: int) -> None:
        wait_s = self.down_until_s - self._world.now_s
        if wait_s > 0:
            self._world.within((wait_s, wait_s + 5.0), self._deliver, topic, message, attempt)
            return
        self._world.begin(partial(self._invoke, topic, message, attempt))

    def _invoke(self, topic: str, message: Message, attempt: int) -> None:
        world = self._world
        if self._handle(topic, message) and not world.chance(world.profile.ack_lost):
            return
        if attempt >= DELIVERIES_MAX:
            world.violate("dead letter", topic, message.data)
            return
        backoff_s = min(60.0, 2.0 ** min(attempt - 1, 6))
        world.after(
            world.between((0.8 * backoff_s, 1.2 * backoff_s)),
            self._deliver,
            topic,
            message,
            attempt + 1,
        )

    def _handle(self, topic: str, message: Message) -> bool:
        """Return whether the message is acknowledged."""
        try:
            self._handlers[topic](message)
        except (CrashedError, TemporaryError):
            return False
        except PermanentError as error:
            if topic not in USER_REQUESTS:
                self._world.violate("rejected", topic, error)
        except Exception as error:  # noqa: BLE001 - a bug of a flow, which is reported with its seed
            where = traceback.format_exc(limit=-4)
            self._world.violate("exception", topic, type(error).__name__, error, where)
            return False
        return True

    def _cancel_job(self, message: Message) -> None:
        user_requests.cancel_job(message.data.decode(), USER, self._deps())

    def _delete_job(self, message: Message) -> None:
        request = message.attributes["request"]
        user_requests.delete_job(message.data.decode(), request, self._deps(), by=USER)

    def _release_machines(self, message: Message) -> None:
        user_requests.release_machines(message.data.decode(), self._deps(), by=USER)

    def _change_labels(self, message: Message) -> None:
        request = message.attributes["request"]
        user_requests.change_labels(
            message.data.decode(), {"request": request}, request, None, self._deps(), by=USER
        )

    def _deps(self) -> CreationDeps:
        world = self._world
        skew_s = world.between((-world.profile.function_skew_s, world.profile.function_skew_s))
        return CreationDeps(
            cast("Store", Port(world, self.store, self._on_commit)),
            cast("Bus", Port(world, self)),
            clock=lambda: world.clock(skew_s),
            sleep=world.suspend,
            limits=world.profile.limits,
            prices=price_list,
        )

    def _fleet_deps(self) -> FleetDeps:
        return FleetDeps(
            cast("Fleet", Port(self._world, self.cloud)),
            Addresses(),
            "p",
            agent_files={},
            run_all=run_in_turn,
        )


class Addresses:
    """Implements `trainmaster.ports.AddressBook`."""

    def address(self, name: str, zone: str) -> str:
        """Return the `host:port` at which the other replicas reach the VM of this name."""
        return f"{name}.{zone}:2222"

    def channel_address(self, name: str, zone: str) -> str:
        """Return the `host:port`, of UDP, at which the agents of the other replicas reach the agent
        of this VM.
        """
        return f"{name}.{zone}:2221"


class Suggestions:
    """Implements `trainmaster.ports.Suggester` for one parameter, the learning rate."""

    def __init__(self, world: World) -> None:
        self._world = world

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """Return the values of the next trial: one per parameter, in the order of
        `tuning.parameters`.
        """
        del tuning
        return (str(random.Random(seed).uniform(0.001, 0.1)),)  # noqa: S311 - the same seed gives the same value

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with
        the values that were compared, in words. Empty without such a rule.
        """
        running = tuning.of_state(TrialState.RUNNING)
        return {
            trial.number: "worse"
            for trial in running
            if self._world.chance(self._world.profile.unpromising)
        }


def run_in_turn(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, then raise the first error, as `provision` runs its steps."""
    first: Exception | None = None
    for task in tasks:
        try:
            task()
        except (TemporaryError, PermanentError) as error:
            first = first or error
    if first:
        raise first
