"""`trainmaster init`: what is remembered, what wins over it, and who uses it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainmaster import Client, PermanentError
from trainmaster.cli import installation
from trainmaster.cli.installation import (
    choose_installation,
    gcloud_property,
    use_installation,
    user_name,
)
from trainmaster.cli.main import app
from trainmaster.wiring.installation import known_variables

ALL = ("--project", "my-project", "--region", "europe-west4", "--api", "https://api-x-ew.a.run.app")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's file, which does not exist yet.

    No variable names an installation, and no stack runs.
    """
    for name in [name for name in os.environ if name.startswith(("TRAINMASTER_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ |= {"XDG_CONFIG_HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}

    def no_stack() -> dict[str, str]:
        raise PermanentError("no stack runs")

    monkeypatch.setattr(installation, "_local_stack_environment", no_stack)
    return tmp_path / "trainmaster" / "installation.json"


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["init", *options])


def test_remembered_installation_is_used_by_commands_and_the_client(config: Path) -> None:
    assert run(*ALL).exit_code == 0
    assert config.stat().st_mode & 0o777 == 0o600
    assert Client()._api._base == "https://api-x-ew.a.run.app/v1/projects/my-project/"
    assert "TRAINMASTER_PROJECT" not in os.environ, "a client changes no environment"
    choose_installation()
    assert os.environ["TRAINMASTER_PROJECT"] == "my-project"
    assert os.environ["TRAINMASTER_BUCKET"] == "my-project-trainmaster"
    assert os.environ["TRAINMASTER_WORKER_SERVICE_ACCOUNT"].startswith(
        "trainmaster-worker@my-project."
    )


def test_options_win_over_variables_and_these_over_what_is_remembered() -> None:
    run(*ALL, "--bucket", "own-bucket")
    os.environ["TRAINMASTER_REGION"] = "us-east1"
    known = known_variables()
    assert (known["TRAINMASTER_REGION"], known["TRAINMASTER_BUCKET"]) == ("us-east1", "own-bucket")
    other = known_variables("other-project")
    assert (other["TRAINMASTER_PROJECT"], other["TRAINMASTER_BUCKET"]) == (
        "other-project",
        "other-project-trainmaster",
    )
    assert "TRAINMASTER_API_ENDPOINT" not in other, "that of another installation"
    os.environ["TRAINMASTER_PROJECT"] = "third-project"
    assert known_variables() == {
        "TRAINMASTER_PROJECT": "third-project",
        "TRAINMASTER_REGION": "us-east1",
        "TRAINMASTER_INSTALLATION": "",
    }


def test_running_local_stack_wins_over_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    run(*ALL)
    stack = {"TRAINMASTER_PROJECT": "trainmaster-local", "TRAINMASTER_BUCKET": "trainmaster-local"}
    monkeypatch.setattr(installation, "_local_stack_environment", lambda: stack)
    choose_installation()
    assert os.environ["TRAINMASTER_BUCKET"] == "trainmaster-local"
    assert "TRAINMASTER_API_ENDPOINT" not in os.environ


def test_values_that_are_not_given_again_stay_unless_the_project_changes(config: Path) -> None:
    run(*ALL)
    run("--project", "my-project", "--region", "us-central1")
    assert json.loads(config.read_text())["api"] == "https://api-x-ew.a.run.app"
    run("--project", "new-project")
    assert json.loads(config.read_text()) == {
        "project": "new-project",
        "bucket": "new-project-trainmaster",
    }


def test_values_of_one_installation_are_not_used_with_another_one_of_its_project(
    config: Path,
) -> None:
    run(*ALL, "--installation", "staging")
    assert Client()._known["TRAINMASTER_INSTALLATION"] == "staging", (
        "a client changes no environment"
    )
    named = {
        "bucket": "my-project-tmstaging",
        "account": "tmstaging-worker@my-project.iam.gserviceaccount.com",
    }

    def known() -> dict[str, str]:
        found = known_variables()
        return {
            "bucket": found["TRAINMASTER_BUCKET"],
            "account": found["TRAINMASTER_WORKER_SERVICE_ACCOUNT"],
        }

    assert known() == named
    run("--project", "my-project")
    assert json.loads(config.read_text())["installation"] == "staging"
    os.environ["TRAINMASTER_INSTALLATION"] = ""
    assert known()["bucket"] == "my-project-trainmaster"
    assert "TRAINMASTER_API_ENDPOINT" not in known_variables(), "that of the other installation"
    del os.environ["TRAINMASTER_INSTALLATION"]
    assert known_variables()["TRAINMASTER_INSTALLATION"] == "staging"
    run("--project", "my-project", "--installation", "")
    assert json.loads(config.read_text()) == {
        "project": "my-project",
        "bucket": "my-project-trainmaster",
    }


def test_show_prints_what_commands_use_and_changes_nothing(config: Path) -> None:
    run(*ALL)
    before = config.read_text()
    os.environ["TRAINMASTER_REGION"] = "us-east1"
    lines = run("--show").stdout.splitlines()
    assert "TRAINMASTER_PROJECT=my-project   # remembered: my-project" in lines
    assert "TRAINMASTER_REGION=us-east1   # remembered: europe-west4" in lines
    assert config.read_text() == before


def test_gcloud_gives_the_default_of_the_project_and_the_user(config: Path, tmp_path: Path) -> None:
    gcloud = tmp_path / "gcloud"
    (gcloud / "configurations").mkdir(parents=True)
    (gcloud / "active_config").write_text("work\n")
    (gcloud / "configurations" / "config_work").write_text(
        "[core]\nproject = gcloud-project\naccount = a%b@example.com\n"
    )
    assert run().exit_code == 0
    assert json.loads(config.read_text())["project"] == "gcloud-project"
    assert user_name() == "a%b@example.com"
    os.environ["CLOUDSDK_CORE_PROJECT"] = "from-environment"
    assert gcloud_property("project") == "from-environment"
    (gcloud / "configurations" / "config_work").write_text("no section")
    assert gcloud_property("account") == ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param([], "--project: '' is not a project id", id="none"),
        pytest.param(
            ["--project", "My Project"], "--project: 'My Project' is not a project id", id="project"
        ),
        pytest.param(
            ["--project", "my-project", "--region", "mars"],
            "--region: 'mars' is not a region",
            id="region",
        ),
        pytest.param(
            ["--project", "my-project", "--api", "api"], "--api: 'api' is not an address", id="api"
        ),
        pytest.param(
            ["--project", "my-project", "--api", "http://example.com"],
            "--api: 'http://example.com' is not an address",
            id="plain-http",
        ),
        pytest.param(
            ["--project", "my-project", "--installation", "my-team"],
            "--installation: installation must have 2 to 11",
            id="installation",
        ),
    ],
)
def test_wrong_values_are_named_and_nothing_is_remembered(
    config: Path, options: list[str], problem: str
) -> None:
    assert problem in str(run(*options).exception)
    assert not config.exists()


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "7", '{"project": 7}', b"\xff"],
    ids=["cut", "list", "number", "type", "bytes"],
)
def test_unreadable_file_is_named_with_the_fix(config: Path, content: str | bytes) -> None:
    config.parent.mkdir()
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        PermanentError, match=r"installation\.json cannot be read: .*run `trainmaster init`"
    ):
        known_variables()


def test_command_without_an_installation_names_the_command_that_remembers_one() -> None:
    assert not use_installation()
    with pytest.raises(
        PermanentError, match="no installation: run `trainmaster init --project PROJECT`"
    ):
        choose_installation()
