"""`trainmaster list`: pages, filters, and the names of jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import cast

import pytest
from typer.testing import CliRunner

from tests.support.jobs import START, a_spec
from tests.support.world import World
from trainmaster.cli.job_output import find_job
from trainmaster.cli.main import app
from trainmaster.core.model.job import Job
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.ports import Rejection, Store


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr("trainmaster.cli.jobs.open_store", lambda: world.store)
    monkeypatch.setattr("trainmaster.cli.cost.open_store", lambda: world.store)
    for number in range(5):
        world.now = START + timedelta(seconds=number)
        world.job_id = f"job_{number}"
        world.submit()
    return world


def listed(*options: str) -> tuple[list[str], str]:
    """Return the rows and what is printed beside them."""
    result = CliRunner().invoke(app, ["jobs", "list", *options])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()[1:], result.stderr


def test_list_that_is_cut_off_says_how_to_continue(world: World) -> None:
    rows, note = listed("--limit", "2")
    assert [row.split()[0] for row in rows] == ["job_4", "job_3"]
    assert note == "There are more jobs: add `--after job_3` for the next ones, or `--limit`.\n"


def test_next_pages_follow_each_other_until_the_end(world: World) -> None:
    rows, note = listed("--limit", "2", "--after", "job_3")
    assert [row.split()[0] for row in rows] == ["job_2", "job_1"]
    rows, note = listed("--limit", "2", "--after", "job_1")
    assert [row.split()[0] for row in rows] == ["job_0"]
    assert note == ""


def test_list_shows_the_display_name_of_a_custom_job(world: World) -> None:
    container = {"imageUri": "gcr.io/my-project/trainer:1"}
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": container,
    }
    extension = {"region": "us-central1"}
    document = {
        "displayName": "nightly",
        "jobSpec": {"workerPoolSpecs": [pool]},
        "trainmaster": extension,
    }
    world.wait(1)
    submit.handle(json.dumps(document).encode(), "gs://b/jobs/nightly.yaml#1", world.deps)
    rows, _ = listed("--limit", "1")
    assert rows[0].split()[1] == "nightly"


def test_list_without_display_names_has_no_empty_column(world: World) -> None:
    result = CliRunner().invoke(app, ["list"])
    assert result.stdout.splitlines()[0].split() == ["JOB_ID", "STATUS", "CREATED", "USER"]


def test_list_can_be_limited_to_states(world: World) -> None:
    assert len(listed("--state", "QUEUED")[0]) == 5
    assert listed("--state", "FAILED", "--state", "RUNNING")[0] == []


def test_list_can_be_limited_to_a_user_and_labels(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CORE_ACCOUNT", "Boris@example.com")
    for number, user in enumerate(("anna@example.com", "boris@example.com")):
        document = {
            **a_spec(),
            "jobId": f"of_{number}",
            "labels": {"team": "vision", "stage": f"s{number}"},
        }
        world.wait(1)
        submit.handle(json.dumps(document).encode(), f"cli:{number}/{user}", world.deps)
    assert [row.split()[0] for row in listed("--user", "ANNA@example.com")[0]] == ["of_0"]
    (mine,) = listed("--mine")[0]
    assert mine.startswith("of_1 ")
    assert mine.endswith(" boris@example.com (unverified)")
    assert len(listed("--label", "team=vision")[0]) == 2
    assert [
        row.split()[0] for row in listed("--label", "team=vision", "--label", "stage=s0")[0]
    ] == ["of_0"]
    _, note = listed("--label", "team=vision", "--limit", "1")
    assert "--after of_1" in note
    assert listed("--label", "team=vision", "--limit", "1", "--after", "of_1")[0][0].startswith(
        "of_0 "
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--mine", "--user", "anna"], "--mine and --user cannot be combined"),
        (["--label", "team"], "--label: team must be KEY=VALUE"),
        (["--label", "=vision"], "--label: =vision must be KEY=VALUE"),
    ],
    ids=["both", "no-value", "no-key"],
)
def test_list_refuses_options_that_say_nothing(
    world: World, options: list[str], problem: str
) -> None:
    result = CliRunner().invoke(app, ["jobs", "list", *options])
    assert result.exit_code == 1
    assert problem in str(result.exception)


def test_label_that_no_job_can_have_is_refused(world: World) -> None:
    for command in ("list", "cost"):
        for label in ("Te am=x", "a.b=c", "a=b=c", "=x", "team", "team=Vision", "k" * 64 + "=v"):
            result = CliRunner().invoke(app, ["jobs", command, "--label", label])
            assert isinstance(result.exception, PermanentError), (command, label)
            assert f"--label: {label} must be KEY=VALUE, of a-z" in str(result.exception)


def test_cost_by_what_is_no_key_of_a_label_is_refused(world: World) -> None:
    for key in ("", "team=vision", "Team", " "):
        result = CliRunner().invoke(app, ["jobs", "cost", "--by", key])
        assert isinstance(result.exception, PermanentError), key
        assert f"--by: must be `user`, `job` or the key of a label, not {key!r}" in str(
            result.exception
        )


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("jobs list", "--user"),
        ("jobs cost", "--user"),
        ("submit job_1 --master-machine-type n1-standard-4", "--project"),
        ("submit job_1 --master-machine-type n1-standard-4", "--staging-bucket"),
        ("convert README.md", "--region"),
        ("prices list", "--region"),
        ("schedule create nightly README.md", "--cron"),
        ("init", "--region"),
    ],
)
def test_an_empty_option_is_refused_and_not_taken_for_none(command: str, option: str) -> None:
    """A script whose variable is not set would see the jobs of all users, or work with another
    installation.
    """
    result = CliRunner().invoke(app, [*command.split(), option, ""])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': must not be empty" in result.stderr


def test_list_after_no_job_is_refused(world: World) -> None:
    result = CliRunner().invoke(app, ["jobs", "list", "--after", ""])
    assert "the job id is empty" in str(result.exception)


class ListOnly:
    """A store that looks up no job by its id."""

    def recent_jobs(self, _limit: int) -> tuple[Job, ...]:
        return ()

    def rejections(self, _limit: int) -> tuple[Rejection, ...]:
        return ()


def test_text_that_is_no_job_id_is_not_looked_up() -> None:
    """Firestore would take it for a path, and its client raises ValueError."""
    for job_id in ("a/b", "../x", "jobs/job_1", "locations/us-central1/customJobs/17", "x y"):
        with pytest.raises(
            PermanentError, match=r"there is no job .*`trainmaster list` shows all jobs"
        ):
            find_job(cast(Store, ListOnly()), job_id)


def test_states_may_be_written_in_any_case(world: World) -> None:
    assert listed("--state", "queued") == listed("--state", "QUEUED")


def test_top_level_commands_are_those_of_jobs(world: World) -> None:
    run = CliRunner().invoke
    assert run(app, ["list"]).stdout == run(app, ["jobs", "list"]).stdout
    assert run(app, ["status"]).stdout == run(app, ["list"]).stdout
