"""The services below the control plane in a benchmark: Google's emulators of Firestore and Pub/Sub.

The VMs are those of `memory.fleet`: dictionary entries that exist as soon as they are requested. A benchmark
measures the control plane, not Compute Engine.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from google.cloud.firestore import Client

from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.pubsub_bus import PubsubBus
from trainmaster.messaging import topics
from trainmaster_emulators.process import processes, service
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.services import firestore, pubsub

TOPICS: Final = (topics.DEAD_LETTER, topics.PROVISION)
"""Topics to which the measured functions publish."""
FIRST_CALL_S: Final = 60.0
"""An emulator compiles much of its code during its first call."""


@dataclass(frozen=True, slots=True)
class Emulators:
    """Addresses of the emulators, `host:port`."""

    firestore: str
    pubsub: str

    @contextmanager
    def project(self) -> Iterator[Project]:
        """Yield an empty project on the emulators. Its clients are closed at the end."""
        variables = {"FIRESTORE_EMULATOR_HOST": self.firestore, clients.PUBSUB_EMULATOR: self.pubsub}
        name = f"bench-{uuid.uuid4().hex[:12]}"
        with mock.patch.dict(os.environ, variables):
            client, publisher = clients.firestore_client(name), clients.publisher()
            observer = FirestoreStore(clients.firestore_client(name))
        for topic in TOPICS:
            publisher.create_topic(name=f"projects/{name}/topics/{topic}", timeout=FIRST_CALL_S)
        bus = PubsubBus(publisher, name)
        project = Project(name, client, FirestoreStore(client), observer, bus)
        try:
            yield project
        finally:
            project.store.close()
            observer.close()
            bus.close()


@dataclass(frozen=True, slots=True)
class Project:
    """One project on the emulators."""

    name: str
    client: Client
    """The client that `store` uses. Floors are measured with it, too."""
    store: FirestoreStore
    observer: FirestoreStore
    """Another store of the same project, for what the benchmark itself reads: it is not counted."""
    bus: PubsubBus


@contextmanager
def emulators(folder: Path) -> Iterator[Emulators]:
    """Run both emulators for the length of the block. Their logs are in `folder`."""
    ports, backend = processes.Ports(), require_backend()
    folder.mkdir(parents=True, exist_ok=True)
    services = [
        firestore.service(backend, ports.take_blocked_addresses(firestore.ADDRESSES)),
        pubsub.service(backend, ports.take_blocked_addresses(1)[0], folder),
    ]
    with ExitStack() as stack:
        stack.callback(ports.close)
        for emulator in services:
            stack.enter_context(service.run_alone(emulator, folder / f"{emulator.name}.log", within_s=60))
        yield Emulators(*(emulator.address for emulator in services))
