"""One emulator for all tests of this folder. Each test starts without VMs and faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.compute.emulator import Emulator, running_emulator


@pytest.fixture(scope="session")
def shared_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator of Compute Engine for the session."""
    with running_emulator(tmp_path_factory.mktemp("compute")) as emulator:
        yield emulator


@pytest.fixture
def emulator(shared_emulator: Emulator) -> Iterator[Emulator]:
    """The emulator of Compute Engine without VMs."""
    yield shared_emulator
    shared_emulator.delete_all()
