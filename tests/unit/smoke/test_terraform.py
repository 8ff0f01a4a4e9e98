"""Installing with Terraform into a state of its own, and removing it whatever happens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from smoke.terraform import GoogleInstallation, second_region
from smoke.world import Output, StepError, World
from tests.unit.smoke.test_run import a_world

EMPTY_PROJECT = """\
ERROR: (gcloud.functions.list) PERMISSION_DENIED: Cloud Functions API has not been used before \
or it is disabled.
- '@type': type.googleapis.com/google.rpc.ErrorInfo
  domain: googleapis.com
  metadata:
    service: cloudfunctions.googleapis.com
  reason: SERVICE_DISABLED
"""
"""What gcloud 528 prints for an API that is not enabled, where it may not ask whether to enable it.
"""
OUTPUTS = {
    "bucket": {"value": "my-project-trainmaster"},
    "api": {"value": "https://api.example.com"},
}


class Cloud:
    """Answers of gcloud and Terraform. `failing`: a Terraform verb that fails."""

    def __init__(self, failing: str = "", functions: str = "", databases: str = "") -> None:
        self.failing = failing
        self.functions = functions
        self.databases = databases
        self.verbs: list[str] = []
        self.commands: list[str] = []
        self.arguments: list[tuple[str, ...]] = []
        self.is_empty, self.starting = False, 0

    def __call__(self, *argv: str, timeout_s: float = 0) -> Output:
        if argv[0] == "gcloud":
            self.commands.append(" ".join(argv))
            if self.is_empty and "list" in argv:
                return Output(1, text="", errors=EMPTY_PROJECT)
            if argv[1:3] == ("compute", "regions") and self.starting:
                self.starting -= 1
                return Output(1, text="", errors=EMPTY_PROJECT)
            answers = {
                "functions": self.functions,
                "firestore": self.databases,
                "run": json.dumps(SERVICE),
            }
            return Output(0, answers.get(argv[1], ""), errors="")
        self.verbs.append(argv[2])
        self.arguments.append(argv)
        if argv[2] == "apply":
            Path(argv[1].removeprefix("-chdir="), "terraform.tfstate").touch()
        if argv[2] == self.failing:
            return Output(1, text="", errors="Error: 403\n")
        return Output(0, json.dumps(OUTPUTS), errors="")


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
        "my-project",
        "europe-west4",
        "me@example.com",
        lambda _: None,
        run=cast(Any, cloud),
        build=build,
        open_world=open_world,
        pause_s=0,
    )


def test_everything_is_destroyed_after_the_steps_and_the_state_is_deleted(tmp_path: Path) -> None:
    cloud, variables = Cloud(), list[dict[str, str]]()
    subject = installation(cloud, tmp_path, variables.append)
    with subject.running() as world:
        assert not (subject.folder / "infra" / "terraform.tfvars").exists(), (
            "the user's own settings do not apply"
        )
        assert (subject.folder / "infra" / "iam.tf").is_file()
        assert (subject.folder / "infra" / "modules" / "event_function").is_dir()
        assert world.facts["invoker_check"] == "off"
        assert world.facts["capacity_role"] == "created"
    assert cloud.verbs == ["init", "apply", "output", "destroy"]
    assert variables[0]["TRAINMASTER_BUCKET"] == "my-project-trainmaster"
    assert variables[0]["CLOUDSDK_API_ENDPOINT_OVERRIDES_ML"] == "https://api.example.com/"
    assert not subject.folder.exists()


@pytest.mark.parametrize(("verb", "last"), [("init", "init"), ("apply", "destroy")])
def test_failed_installation_is_destroyed_if_it_created_something(
    verb: str, last: str, tmp_path: Path
) -> None:
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


def test_failed_destroy_keeps_the_state_and_names_the_command_that_repeats_it(
    tmp_path: Path,
) -> None:
    cloud = Cloud(failing="destroy")
    subject = installation(cloud, tmp_path)
    with (
        pytest.raises(
            StepError, match="make smoke PROJECT=my-project REGION=europe-west4 REMOVE=1"
        ),
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
        Cloud(
            functions="projects/my-project/locations/europe-west4/functions/trainmaster-submit\n"
        ),
        Cloud(databases="projects/my-project/databases/(default)\n"),
    ],
)
def test_project_with_an_installation_or_a_database_is_refused_before_anything_is_created(
    cloud: Cloud, tmp_path: Path
) -> None:
    with (
        pytest.raises(StepError, match="use a project without one"),
        installation(cloud, tmp_path).running(),
    ):
        pass
    assert cloud.verbs == []


def test_empty_project_gets_the_apis_and_the_identity_that_the_readme_asks_for(
    tmp_path: Path,
) -> None:
    cloud = Cloud()
    cloud.is_empty, cloud.starting = True, 2
    with installation(cloud, tmp_path).running():
        assert cloud.verbs == ["init", "apply", "output"]
    readme = Path("infra/README.md").read_text(encoding="utf-8")
    (enabled,) = re.findall(r"gcloud services enable (.+) --project PROJECT", readme)
    (sent,) = [
        command for command in cloud.commands if command.startswith("gcloud services enable ")
    ]
    assert set(sent.split()) >= set(enabled.split())
    (identity,) = re.findall(r"gcloud beta services identity create --service (\S+)", readme)
    assert (
        f"gcloud beta services identity create --service={identity} --project=my-project"
        in cloud.commands
    )
    assert sum("compute regions describe" in command for command in cloud.commands) == 3, (
        "until the API works"
    )


def test_each_run_has_role_ids_of_its_own(tmp_path: Path) -> None:
    assert any(
        argument.startswith("-var=role_suffix=Smoke2")
        for argument in installation(Cloud(), tmp_path)._variables
    )


@pytest.mark.parametrize(
    ("region", "second"),
    [
        ("us-central1", "us-east1"),
        ("us-west4", "us-central1"),
        ("europe-west1", "europe-west4"),
        ("asia-southeast1", "asia-east1"),
        ("me-west1", ""),
    ],
)
def test_second_region_is_on_the_same_continent(region: str, second: str) -> None:
    assert second_region(region) == second


def test_jobs_may_run_in_both_regions_and_never_in_a_region_without_name(tmp_path: Path) -> None:
    def worker_regions(region: str) -> str:
        cloud = Cloud()
        subject = replace(installation(cloud, tmp_path), region=region)
        with subject.running():
            pass
        applied = next(words for words in cloud.arguments if "apply" in words)
        return next(word for word in applied if word.startswith("-var=worker_regions="))

    assert json.loads(worker_regions("us-central1").rpartition("=")[2]) == {
        "us-central1": "10.128.0.0/20",
        "us-east1": "10.132.0.0/20",
    }
    assert json.loads(worker_regions("me-west1").rpartition("=")[2]) == {
        "me-west1": "10.128.0.0/20"
    }
