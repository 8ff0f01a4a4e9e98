"""One emulator for all tests of this folder. Each test starts without nodes and faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.compute.emulator import running_emulator
from tests.integration.tpu.slices import Slices


@pytest.fixture(scope="session")
def shared_slices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slices]:
    """One emulator of Cloud TPU for the session."""
    with running_emulator(tmp_path_factory.mktemp("tpu")) as emulator:
        yield Slices(emulator)


@pytest.fixture
def slices(shared_slices: Slices) -> Iterator[Slices]:
    """The emulator of Cloud TPU without nodes and requests."""
    yield shared_slices
    shared_slices.clear()
