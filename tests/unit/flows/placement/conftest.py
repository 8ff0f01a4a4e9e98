"""The installation of these tests: its fleet fails the requests that a test names."""

from __future__ import annotations

import pytest

from tests.support.world import World
from tests.unit.flows.placement.placed_fleet import PlacedFleet


@pytest.fixture
def fleet() -> PlacedFleet:
    """A fleet that fails the requests that a test names."""
    return PlacedFleet()


@pytest.fixture
def world(fleet: PlacedFleet) -> World:
    """A control plane without a job, on that fleet."""
    return World(fleet=fleet)
