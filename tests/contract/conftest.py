"""The emulator of Compute Engine for all tests of this folder, and fleets: on it, in memory and in
the explorer, which runs random histories in virtual time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from google.cloud.firestore import Client

from tests.contract.fleets import (
    EmulatorWorld,
    ExplorerWorld,
    MemoryWorld,
    World,
)
from tests.integration.compute.emulator import Emulator, running_emulator
from tests.support.jobs import a_job
from trainmaster.core.model.job import Job
from trainmaster.gcp import clients


@pytest.fixture(scope="session")
def shared_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator of Compute Engine for the session."""
    with running_emulator(tmp_path_factory.mktemp("fleet")) as emulator:
        yield emulator


@pytest.fixture
def emulator(shared_emulator: Emulator) -> Iterator[Emulator]:
    """The emulator of Compute Engine without VMs."""
    yield shared_emulator
    shared_emulator.delete_all()


@pytest.fixture
def compute(emulator: Emulator) -> EmulatorWorld:
    """The adapter of Compute Engine, on the emulator."""
    return EmulatorWorld(emulator)


@pytest.fixture(params=["memory", "explorer", "emulator"])
def world(request: pytest.FixtureRequest) -> World:
    """A fleet with its cloud, in each of its implementations."""
    if request.param == "memory":
        return MemoryWorld()
    if request.param == "explorer":
        return ExplorerWorld()
    found: EmulatorWorld = request.getfixturevalue("compute")
    return found


@pytest.fixture
def client(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of Firestore's emulator, in a project of its own."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    client = clients.firestore_client(f"test-{uuid.uuid4().hex[:12]}")
    yield client
    client.close()


@pytest.fixture
def job() -> Job:
    """Return a job with a new id for each test, because request ids are remembered longer than VMs
    exist.
    """
    return a_job(job_id=f"digits_{uuid.uuid4().hex[:8]}")
