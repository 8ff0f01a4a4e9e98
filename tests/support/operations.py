"""Operations of the control plane, counted in one process: what Firestore, Pub/Sub and functions
would charge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, cast

from bench.counting import Counts, counting_store
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster_local.memory.store import MemoryStore

MESSAGE_S: Final = 0.01
"""Time between two messages of a gang: all of its agents report within a second."""


@dataclass
class CountedWorld:
    """A job whose control plane is counted."""

    world: World = field(default_factory=World)
    counts: Counts = field(default_factory=Counts)
    store: MemoryStore = field(default_factory=MemoryStore)
    messages: int = 0
    """Messages that agents sent, and the submission."""
    published: int = 0
    _counting: MemoryStore = field(init=False)
    """The store of the flows. Agents, and the tests, read `store`, which counts no reads."""

    def __post_init__(self) -> None:
        self._counting = cast(MemoryStore, counting_store(self.store, self.counts))
        self.world.store = self._counting
        publish, send, report = self.world.bus.publish, self.world.send, self.world._report_held

        def count(topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
            self.published += 1
            publish(topic, data, attributes)

        def send_counted(kind: str, replica_id: ReplicaId, **more: object) -> None:
            self.messages += 1
            self.world.wait(MESSAGE_S - 1)  # `World.send` waits a second
            with self._reading(self._counting):
                send(kind, replica_id, **more)

        def report_uncounted() -> None:
            with self._reading(self.store):
                report()

        self.world.bus.publish = count  # type: ignore[method-assign]
        self.world.send = send_counted  # type: ignore[method-assign]
        self.world._report_held = report_uncounted  # type: ignore[method-assign]

    @contextmanager
    def _reading(self, store: MemoryStore) -> Iterator[None]:
        before, self.world.store = self.world.store, store
        try:
            yield
        finally:
            self.world.store = before

    def submit(self, spec: dict[str, object]) -> None:
        self.messages += 1
        self.world.submit(spec)
        self.world.deliver()

    def send(self, kind: str, replica_id: ReplicaId, **more: object) -> None:
        """Send a message; deliver what follows with `deliver`, as a gang's events share one
        provisioning round.
        """
        self.world.send(kind, replica_id, **more)

    def deliver(self) -> None:
        self.world.deliver()

    @property
    def invocations(self) -> int:
        """Every message is one invocation of a function."""
        return self.messages + self.published
