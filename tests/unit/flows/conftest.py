"""Worlds that most tests of the flows begin with."""

from __future__ import annotations

import pytest

from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running() -> World:
    world = World()
    world.running()
    world.deliver()
    return world
