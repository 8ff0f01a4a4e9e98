"""Installing with Terraform into a state of its own, and removing it whatever happens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from smoke.terraform import GoogleInstallation
from smoke.world import Output, StepError, World
from tests.unit.smoke.test_run import a_world

OUTPUTS = {"bucket": {"value": "my-project-trainmaster"}, "api": {"value": "https://api.example.com"}}


class Cloud:
    """Answers of gcloud and Terraform. `failing`: a Terraform verb that fails."""

    def __init__(self, failing: str = "", functions: str = "", databases: str = "") -> None:
        self.failing, self.functions, self.databases = failing, functions, databases
        self.verbs: list[str] = []

    def __call__(self, *argv: str, timeout_s: float = 0) -> Output:
        if argv[0] == "gcloud":
            answers = {"functions": self.functions, "firestore": self.databases, "run": json.dumps(SERVICE)}
            return Output(0, answers[argv[1]], "")
        self.verbs.append(argv[2])
        if argv[2] == "apply":
            Path(argv[1].removeprefix("-chdir="), "terraform.tfstate").touch()
        if argv[2] == self.failing:
            return Output(1, "", "Error: 403\n")
        return Output(0, json.dumps(OUTPUTS), "")


SERVICE = {"metadata": {"annotations": {"run.googleapis.com/invoker-iam-disabled": "true"}}}


def installation(
    cloud: Cloud, build: Path, seen: Callable[[dict[str, str]], None] = lambda _: None
) -> GoogleInstallation:
    @contextmanager
    def open_world(variables: dict[str, str], *_: object, **options: Any) -> Iterator[World]:
        seen(variables)
        world = a_world()
        object.__setattr__(world, "run", cloud)
        yield world

    return GoogleInstallation(
        *("my-project", "europe-west4", "me@example.com", lambda _: None),
        run=cast(Any, cloud),
        build=build,
        open_world=open_world,
    )


def test_everything_is_destroyed_after_the_steps_and_the_state_is_deleted(tmp_path: Path) -> None:
    cloud, variables = Cloud(), list[dict[str, str]]()
    subject = installation(cloud, tmp_path, variables.append)
    with subject.running() as world:
        assert not (subject.folder / "infra" / "terraform.tfvars").exists(), "the user's own settings do not apply"
        assert (subject.folder / "infra" / "iam.tf").is_file()
        assert (subject.folder / "infra" / "modules" / "event_function").is_dir()
        assert world.facts["invoker_check"] == "off"
    assert cloud.verbs == ["init", "apply", "output", "destroy"]
    assert variables[0]["TRAINMASTER_BUCKET"] == "my-project-trainmaster"
    assert variables[0]["CLOUDSDK_API_ENDPOINT_OVERRIDES_ML"] == "https://api.example.com/"
    assert not subject.folder.exists()


@pytest.mark.parametrize(("verb", "last"), [("init", "init"), ("apply", "destroy")])
def test_failed_installation_is_destroyed_if_it_created_something(verb: str, last: str, tmp_path: Path) -> None:
    cloud = Cloud(failing=verb)
    subject = installation(cloud, tmp_path)
    with pytest.raises(StepError, match=f"terraform {verb}: Error: 403"), subject.running():
        pass
    assert cloud.verbs[-1] == last
    assert not subject.folder.exists()


def test_interrupted_steps_are_followed_by_destroy(tmp_path: Path) -> None:
    cloud = Cloud()
    with pytest.raises(KeyboardInterrupt), installation(cloud, tmp_path).running():
        raise KeyboardInterrupt
    assert cloud.verbs[-1] == "destroy"


def test_failed_destroy_keeps_the_state_and_names_the_command_that_repeats_it(tmp_path: Path) -> None:
    cloud = Cloud(failing="destroy")
    subject = installation(cloud, tmp_path)
    with (
        pytest.raises(StepError, match="make smoke PROJECT=my-project REGION=europe-west4 REMOVE=1"),
        subject.running(),
    ):
        pass
    assert subject.folder.exists()
    with pytest.raises(StepError, match="an earlier run left resources"), subject.running():
        pass
    cloud.failing = ""
    subject.remove()
    assert not subject.folder.exists()
    subject.remove()


@pytest.mark.parametrize(
    "cloud",
    [
        Cloud(functions="projects/my-project/locations/europe-west4/functions/trainmaster-submit\n"),
        Cloud(databases="projects/my-project/databases/(default)\n"),
    ],
)
def test_project_with_an_installation_or_a_database_is_refused_before_anything_is_created(
    cloud: Cloud, tmp_path: Path
) -> None:
    with pytest.raises(StepError, match="use a project without one"), installation(cloud, tmp_path).running():
        pass
    assert cloud.verbs == []
