"""`trainmaster why`: a job's search for machines, in plain words."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.support.jobs import a_spec
from tests.support.world import World

A, B, C, F = (f"us-central1-{letter}" for letter in "abcf")
GOOGLE = "does not have enough resources available"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr("cli.why.open_store", lambda: world.store)
    return world


def why(world: World, *options: str) -> str:
    result = CliRunner().invoke(app, ["why", world.job_id, *options])
    assert result.exit_code == 0, result.output
    return result.output


def seek_in_vain(world: World, times: int) -> None:
    for _ in range(times):
        world.provision()
        world.wait(60)


def test_each_zone_is_told_with_what_google_said_and_where_machines_were_found(world: World) -> None:
    world.fleet.stockout_zones = {A, B}
    world.submit()
    world.deliver()
    told = why(world)
    lines = [line for line in told.splitlines() if "No room" in line]
    assert len(lines) == 2
    assert f"for 1 x n1-standard-4 (chief) in {A} (ZONE_RESOURCE_POOL_EXHAUSTED: {A} {GOOGLE}); trying {B}" in lines[0]
    assert f"trying {C} next.  [rule 11]" in lines[1]
    assert f"VMs are requested in {C}; they were refused 2 times so far, and" in told


def test_the_next_job_says_which_zones_it_tries_last(world: World) -> None:
    world.fleet.stockout_zones = {A}
    world.submit()
    world.deliver()
    world.job_id = "digits_2"
    world.submit(source="gs://b/jobs/digits.yaml#2")
    assert f"Tried last: {A}, which had no room for such machines a moment ago." in why(world)


def test_a_long_search_is_told_by_its_beginning_and_its_end(world: World) -> None:
    world.fleet.stockout_zones = {A, B, C, F}
    world.submit()
    seek_in_vain(world, 6)
    assert world.job.placement.round == 24
    told = why(world)
    assert told.count("No room") == 9
    assert "15 more refusals like these" in told
    assert why(world, "--all").count("No room") == 24


@pytest.mark.parametrize(
    ("scheduling", "until"),
    [
        ({"maxWaitTime": "3600s"}, "2026-11-21 04:00:00 (maxWaitTime)"),
        ({}, "2026-11-28 03:00:00 (without a maxWaitTime)"),
    ],
)
def test_every_search_says_when_it_ends(world: World, scheduling: dict[str, str], until: str) -> None:
    world.fleet.stockout_zones = {A, B, C, F}
    world.submit(a_spec(scheduling=scheduling))
    seek_in_vain(world, 1)
    told = why(world)
    assert f"and are requested until {until}" in told
    assert f"and are asked for again at {world.job.placement.next_at:%H:%M:%S} or within the minute after" in told


def test_a_job_that_found_its_machines_seeks_none(world: World) -> None:
    world.running()
    assert "requested" not in why(world)
