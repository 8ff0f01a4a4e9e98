"""The program as a whole: every command says what it does, and what a user can cause ends in one line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from google.api_core.exceptions import PermissionDenied
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from typer.testing import CliRunner

from cli import jobs, main
from shared import settings
from shared.errors import PermanentError, TemporaryError
from shared.gcp.refusals import told
from shared.gcp.rest import RestError
from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


EVERY = dict(commands(typer.main.get_command(main.app)))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_and_each_of_its_options_says_what_it_is_for(path: tuple[str, ...]) -> None:
    command = EVERY[path]
    assert command.help
    assert [each.name for each in command.params if not each.help and not getattr(each, "hidden", False)] == []
    shown = CliRunner().invoke(main.app, [*path, "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    assert not re.findall(r"--[a-z-]+…", shown.output), "a name that is cut off"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str]]:
    """The exit status of the console script and what it said on standard error, where a command raises this."""

    def run(raised: BaseException) -> tuple[object, str]:
        def broken() -> None:
            raise raised

        monkeypatch.setattr(sys, "argv", ["trainmaster", "jobs", "list"])
        monkeypatch.setattr(jobs, "open_store", broken)
        with pytest.raises(SystemExit) as ended:
            main.run()
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (PermanentError("no job x"), "no job x"),
        (TemporaryError("Firestore does not answer"), "Firestore does not answer"),
        (
            DefaultCredentialsError("…"),
            "no credentials for Google Cloud were found: log in with `gcloud auth application-default login`",
        ),
        (
            RefreshError("…"),
            "your credentials for Google Cloud have ended: log in with `gcloud auth application-default login`",
        ),
        (
            RestError(403, "PERMISSION_DENIED", "Missing or insufficient permissions."),
            "Google Cloud refuses: Missing or insufficient permissions. `trainmaster doctor` says what to repair",
        ),
        (
            PermissionDenied("Missing or insufficient permissions."),
            "Google Cloud refuses: Missing or insufficient permissions. `trainmaster doctor` says what to repair",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_user_can_cause_is_one_line_and_status_1(
    ended: Callable[..., tuple[object, str]], raised: Exception, said: str
) -> None:
    assert ended(raised) == (1, f"trainmaster: {said}\n")


def test_trouble_that_comes_of_missing_credentials_says_how_to_log_in(ended: Callable[..., tuple[object, str]]) -> None:
    trouble = TemporaryError("credentials: …")
    trouble.__cause__ = DefaultCredentialsError("…")
    assert "gcloud auth application-default login" in ended(trouble)[1]


def test_a_wrong_setting_is_named_and_an_interrupt_has_its_status(
    ended: Callable[..., tuple[object, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_LIMITS", "many")
    with pytest.raises(ValueError, match="limits") as wrong:
        settings.Settings.of(os.environ)
    assert ended(wrong.value) == (
        1,
        "trainmaster: TRAINMASTER_LIMITS: 'many' is not RESOURCE=NUMBER, once each, such as vcpus=450\n",
    )
    assert ended(KeyboardInterrupt()) == (130, "")


def test_a_bug_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trainmaster", "jobs", "list"])
    monkeypatch.setattr(jobs, "open_store", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main.run()
    assert told(ZeroDivisionError()) is None


def test_a_job_is_described_for_people_and_for_programs(installation: Installation, tmp_path: Path) -> None:
    job = {"jobId": "digits_1", "labels": {"team": "vision", "stage": "a"}, **a_spec(runtimeVersion="2.11")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert installation.run("submit", str(tmp_path / "job.json")).exit_code == 0
    lines = installation.run("jobs", "describe", "digits_1").stdout.splitlines()
    assert lines[0] == "jobId: digits_1"
    assert {"state: QUEUED", "labels: stage=a, team=vision"} <= set(lines)
    assert "submitted: by trainmaster submit" in lines
    assert "used so far: 0.00 machine-hours, 0.00 ML units" in lines
    assert not [line for line in lines if "{" in line], "no dictionaries"
    shown = json.loads(installation.run("jobs", "describe", "digits_1", "--format=json").stdout)
    assert shown["trainmaster"]["usage"] == {"machineHours": 0.0, "mlUnits": 0.0}
    assert shown["trainmaster"]["submitted"] == "by trainmaster submit"
    assert installation.run("why", "digits_1").stdout.startswith("digits_1 was submitted by trainmaster submit.\n")


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(main.app, ["--version"]).stdout.startswith("trainmaster ")


def test_the_shell_is_told_commands_and_options() -> None:
    for words, expected in (("trainmaster jo", "jobs"), ("trainmaster submit --worker-co", "--worker-count")):
        env = {**os.environ, "_TRAINMASTER_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(words.count(" "))
        done = CliRunner().invoke(main.app, [], prog_name="trainmaster", env=env)
        assert done.stdout.split() == [expected]
