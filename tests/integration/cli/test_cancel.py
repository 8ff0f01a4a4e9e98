"""`trainmaster cancel`: one job, several, or all that match."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.support.world import World
from trainmaster.cli.main import app


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Three jobs that have not begun, and one that has ended."""
    world = World()
    monkeypatch.setattr("trainmaster.cli.cancel.open_store", lambda: world.store)
    monkeypatch.setattr("trainmaster.wiring.core_services.deps", lambda: world.deps)
    monkeypatch.setattr("trainmaster.cli.cancel.user_name", lambda: "anna")
    for number in range(4):
        world.job_id = f"job_{number}"
        world.submit()
    cancel("job_3")
    return world


def cancel(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["cancel", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def states(world: World) -> list[str]:
    jobs = sorted(world.store.recent_jobs(10), key=lambda job: job.job_id)
    return [job.state.value for job in jobs]


def test_several_jobs_are_cancelled_at_once(world: World) -> None:
    assert cancel("job_0", "job_2") == "job_0: CANCELLED\njob_2: CANCELLED\n"
    assert states(world) == ["CANCELLED", "QUEUED", "CANCELLED", "CANCELLED"]


def test_all_cancels_what_has_not_ended(world: World) -> None:
    answer = json.loads(cancel("--all", "--format", "json"))
    assert {job["jobId"] for job in answer} == {"job_0", "job_1", "job_2"}
    assert states(world) == ["CANCELLED"] * 4
    assert cancel("--all") == "No job was running or waiting.\n"


def test_all_of_a_user_leaves_those_of_others(world: World) -> None:
    assert cancel("--all", "--user", "nobody@example.com") == "No job was running or waiting.\n"
    assert states(world)[:3] == ["QUEUED"] * 3


@pytest.mark.parametrize("arguments", [[], ["job_0", "--all"], ["job_0", "--mine"]], ids=str)
def test_names_and_filters_are_not_mixed(world: World, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["cancel", *arguments])
    assert str(result.exception) == "name the jobs to cancel, or give --all"


def test_unknown_job_cancels_none(world: World) -> None:
    result = CliRunner().invoke(app, ["cancel", "job_0", "job_9"])
    assert "there is no job job_9" in str(result.exception)
    assert states(world)[:3] == ["QUEUED"] * 3
