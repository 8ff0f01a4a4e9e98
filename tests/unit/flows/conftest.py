"""The worlds that most tests of the flows start with."""

from __future__ import annotations

import pytest

from tests.support.study import Study
from tests.support.world import World


@pytest.fixture
def world() -> World:
    """A world without a job."""
    return World()


@pytest.fixture
def running() -> World:
    """A world whose job is RUNNING: a chief and two workers."""
    world = World(is_independent=True)
    world.start_running()
    world.deliver()
    return world


@pytest.fixture
def study() -> Study:
    """A world for a tuning job."""
    return Study()
