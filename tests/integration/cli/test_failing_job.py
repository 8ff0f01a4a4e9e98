"""A job that keeps failing on the command line: `why`, `jobs list`, `jobs describe`, `wait`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.support.failing_world import LAST, failing_world
from tests.support.jobs import CHIEF
from tests.support.world import World
from trainmaster.cli import wait
from trainmaster.cli.job_output import find_job
from trainmaster.cli.main import app
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica
from trainmaster.errors import PermanentError

FAILING = f"failing: 3 in a row, last {LAST}"


@pytest.fixture(params=[0, 2], ids=["judged alone", "gang"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    return show(failing_world(datetime.now(UTC), failures=3, workers=request.param), monkeypatch)


def show(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for command in ("why", "jobs"):
        monkeypatch.setattr(f"trainmaster.cli.{command}.open_store", lambda: world.store)
        monkeypatch.setattr(f"trainmaster.cli.{command}.read_metrics", lambda *_: None)
    monkeypatch.setenv("TRAINMASTER_METRICS", "off")
    monkeypatch.setattr("trainmaster.cli.why.losses_in_log", lambda _: ())
    settings = SimpleNamespace(limits=world.limits)
    monkeypatch.setattr("trainmaster.cli.why.settings", lambda: settings)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    return world


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_why_says_that_the_job_fails_and_what_follows(world: World) -> None:
    lines = run("why", world.job_id).splitlines()
    assert f"F{FAILING[1:]}." in lines
    (first, *others) = [line for line in lines if line.startswith("Next: ")]
    assert first.startswith("Next: Restart 3 of 5")
    assert "after a pause of 2 s. " in first
    assert "Next: Every replica runs." not in others, "the restart is what comes next"


def test_list_names_a_missing_index_and_shows_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = show(failing_world(datetime.now(UTC), failures=3), monkeypatch)

    def refuse(jobs: Sequence[Job]) -> Mapping[str, tuple[Replica, ...]]:
        raise PermanentError("Firestore: query: The query requires an index.")

    monkeypatch.setattr(world.store, "failing_replicas", refuse)
    result = CliRunner().invoke(app, ["jobs", "list"])
    assert result.exit_code == 0
    assert world.job_id in result.stdout
    assert "keep failing: Firestore: query: The query requires an index." in result.stderr


def test_why_as_json_has_the_row_and_the_decisions(world: World) -> None:
    document = json.loads(run("why", world.job_id, "--format", "json"))
    assert document["failing"]["failures"] == 3
    assert [decision["attempt"] for decision in document["decisions"]]
    only = json.loads(run("why", world.job_id, "chief-0", "--format", "json"))
    assert {decision.get("replica") for decision in only["decisions"]} <= {None, "chief-0"}


def test_list_has_a_column_for_jobs_that_fail_and_none_without_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, row = run("jobs", "list").splitlines()
    assert header.split()[-1] == "ATTENTION"
    assert row.endswith(FAILING)
    (listed,) = json.loads(run("jobs", "list", "--format", "json"))
    assert listed["trainmaster"]["failing"]["failures"] == 3
    show(failing_world(datetime.now(UTC), failures=1), monkeypatch)
    header = run("jobs", "list").splitlines()[0]
    assert "ATTENTION" not in header
    (listed,) = json.loads(run("jobs", "list", "--format", "json"))
    assert "failing" not in listed["trainmaster"]


def test_describe_has_the_row_in_words_and_as_fields(world: World) -> None:
    lines = run("jobs", "describe", world.job_id).splitlines()
    assert FAILING in lines
    assert lines[lines.index(FAILING) + 1].startswith("next: Restart 3 of 5")
    view = json.loads(run("jobs", "describe", world.job_id, "--format", "json"))
    failing = view["trainmaster"]["failing"]
    assert (failing["failures"], failing["lastFailure"]) == (3, LAST)
    assert failing["nextStep"].startswith("Restart 3 of 5")


def test_wait_prints_each_further_failure_once(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def succeed() -> None:
        world.send("replica-exit", CHIEF, cause="process", exit_status=0)

    steps = [lambda: None, lambda: None, succeed]
    wait.wait(world.job_id, world.store, sleep=lambda _: steps.pop(0)())
    printed = capsys.readouterr().err.splitlines()
    assert len([line for line in printed if line.startswith(f"  {FAILING}. Restart 3")]) == 1


def test_table_of_wait_has_the_row() -> None:
    world = failing_world(datetime.now(UTC), failures=3)
    output = StringIO()
    table = wait.job_table(find_job(world.store, world.job_id), world.now)
    Console(file=output, width=300).print(table)
    assert output.getvalue().splitlines()[1].startswith(f"{FAILING}. Restart 3 of 5")


def test_row_is_gone_when_the_program_runs_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    world = show(failing_world(an_hour_ago, failures=3), monkeypatch)
    assert "failing: " not in run("why", world.job_id).lower()
    assert "failing: " not in run("jobs", "list").lower()
