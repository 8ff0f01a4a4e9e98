"""The service below the control plane in a benchmark: Google's emulator of Firestore.

The VMs are those of `memory.fleet`: dictionary entries that exist as soon as they are requested. A
benchmark measures the control plane, not Compute Engine.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from google.cloud.firestore import Client

from trainmaster.gcp import clients
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster_emulators.process import processes, service
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.services import firestore


@dataclass(frozen=True, slots=True)
class Emulators:
    """Address of the emulator, `host:port`."""

    firestore: str

    @contextmanager
    def project(self) -> Iterator[Project]:
        """Yield an empty project on the emulator. Its clients are closed at the end."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        with mock.patch.dict(os.environ, {"FIRESTORE_EMULATOR_HOST": self.firestore}):
            client = clients.firestore_client(name)
            observer = FirestoreStore(clients.firestore_client(name))
        project = Project(name, client, FirestoreStore(client), observer)
        try:
            yield project
        finally:
            project.store.close()
            observer.close()


@dataclass(frozen=True, slots=True)
class Project:
    """One project on the emulators."""

    name: str
    client: Client
    """The client that `store` uses."""
    store: FirestoreStore
    observer: FirestoreStore
    """Another store of the same project, for what the benchmark itself reads: it is not counted."""


@contextmanager
def emulators(folder: Path) -> Iterator[Emulators]:
    """Run the emulator for the length of the block. Its log is in `folder`."""
    ports = processes.Ports()
    emulator = firestore.service(
        require_backend(), ports.take_blocked_addresses(firestore.ADDRESSES)
    )
    with ExitStack() as stack:
        stack.callback(ports.close)
        stack.enter_context(
            service.run_alone(emulator, folder / f"{emulator.name}.log", within_s=60)
        )
        yield Emulators(emulator.address)
