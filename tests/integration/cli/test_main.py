"""The program as a whole: errors of users are one line and an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.api_core.exceptions import BadRequest, PermissionDenied
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from typer.testing import CliRunner

from tests.integration.cli.conftest import Installation, RunMain
from tests.support.jobs import a_spec
from trainmaster import settings
from trainmaster.cli import jobs, main
from trainmaster.cli.local_distribution import MISSING, PACKAGE
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows import submit
from trainmaster.gcp.errors import explain

REFUSED = (
    "Google Cloud refused the request: Missing or insufficient permissions. "
    "Run `trainmaster doctor` to see what to repair"
)

RunFailing = Callable[[BaseException], tuple[object, str]]


@pytest.fixture
def run_failing(run_main: RunMain, monkeypatch: pytest.MonkeyPatch) -> RunFailing:
    """Runs the console script with a command that raises this error."""

    def run(error: BaseException) -> tuple[object, str]:
        def fail() -> None:
            raise error

        monkeypatch.setattr(jobs, "open_store", fail)
        return run_main("jobs", "list")

    return run


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermanentError("no job x"), "no job x"),
        (TemporaryError("Firestore does not answer"), "Firestore does not answer"),
        (
            DefaultCredentialsError("…"),
            (
                "no credentials for Google Cloud were found: log in with `gcloud auth"
                " application-default login`"
            ),
        ),
        (
            RefreshError("…"),
            (
                "your credentials for Google Cloud have expired: log in with `gcloud auth"
                " application-default login`"
            ),
        ),
        (
            PermissionDenied("Missing or insufficient permissions."),
            REFUSED,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_expected_error_is_one_line_and_status_1(
    run_failing: RunFailing, error: Exception, message: str
) -> None:
    assert run_failing(error) == (1, f"trainmaster: {message}\n")


def test_error_caused_by_missing_credentials_explains_how_to_log_in(
    run_failing: RunFailing,
) -> None:
    error = TemporaryError("credentials: …")
    error.__cause__ = DefaultCredentialsError("…")
    assert "gcloud auth application-default login" in run_failing(error)[1]


def test_interrupt_has_status_130(run_failing: RunFailing) -> None:
    assert run_failing(KeyboardInterrupt()) == (130, "")


def test_invalid_setting_is_named(run_failing: RunFailing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_LIMITS", "many")
    with pytest.raises(ValueError, match="limits") as invalid:
        settings.read_settings()
    assert run_failing(invalid.value) == (
        1,
        (
            "trainmaster: TRAINMASTER_LIMITS: 'many' is not RESOURCE=NUMBER, once each, such as"
            " vcpus=450\n"
        ),
    )


def test_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["trainmaster", "jobs", "list"])
    monkeypatch.setattr(jobs, "open_store", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main.run()
    assert explain(ZeroDivisionError()) is None


class Absent:
    """Finds no module of the other distribution."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)


@pytest.mark.parametrize("command", ["local up", "simulate job.yaml", "advise digits_1"])
def test_command_of_the_other_distribution_says_how_to_get_it(
    run_main: RunMain, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    assert run_main(*command.split()) == (1, f"trainmaster: {MISSING}\n")


def test_describe_prints_text_or_json(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CORE_ACCOUNT", "anna@example.com")
    job = {
        "jobId": "digits_1",
        "labels": {"team": "vision", "stage": "a"},
        **a_spec(runtimeVersion="2.11"),
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert installation.run("submit", str(tmp_path / "job.json")).exit_code == 0
    lines = installation.run("jobs", "describe", "digits_1").stdout.splitlines()
    assert lines[0] == "jobId: digits_1"
    assert {"state: QUEUED", "labels: stage=a, team=vision"} <= set(lines)
    assert "submitted: by trainmaster submit, by anna@example.com (unverified)" in lines
    assert "used so far: 0.00 machine-hours, 0.00 ML units" in lines
    assert not [line for line in lines if "{" in line], "a value is printed as a dictionary"
    view = json.loads(installation.run("jobs", "describe", "digits_1", "--format=json").stdout)
    assert view["trainmaster"]["usage"] == {"machineHours": 0.0, "mlUnits": 0.0}
    assert (
        view["trainmaster"]["submitted"]
        == "by trainmaster submit, by anna@example.com (unverified)"
    )
    assert installation.run("why", "digits_1").stdout.startswith(
        "digits_1 was submitted by trainmaster submit, by anna@example.com (unverified).\n"
    )


def test_unknown_job_is_one_error_line(installation: Installation, run_main: RunMain) -> None:
    error = "trainmaster: there is no job missing_1. `trainmaster list` shows all jobs\n"
    assert run_main("jobs", "describe", "missing_1") == (1, error)


@pytest.mark.parametrize(
    ("job_id", "answer"),
    [
        ("Digits_1", "there is no job Digits_1; did you mean digits_1?"),
        ("digit_1", "there is no job digit_1; did you mean digits_1?"),
        ("digits-1", "there is no job digits-1; did you mean digits_1?"),
        ("jobs/digits_1", "there is no job jobs/digits_1; did you mean digits_1?"),
        ("resnet", "there is no job resnet. `trainmaster list`"),
        ("worker-0", "worker-0 is the name of a replica, which comes after the job's id"),
        ("", "the job id is empty"),
    ],
)
def test_wrong_job_id_is_answered_with_the_id_that_is_meant(
    installation: Installation, run_main: RunMain, job_id: str, answer: str
) -> None:
    submit.handle(
        json.dumps({"jobId": "digits_1", **a_spec()}).encode(), "gs://b/1.yaml#1", installation.deps
    )
    for command in ("why", "describe", "logs", "cancel", "wait"):
        status, error = run_main(command, job_id)
        assert status == 1
        assert answer in error


def test_refused_value_is_no_fault_of_the_installation() -> None:
    answer = BadRequest("POST http://127.0.0.1:1/v1/jobs?alt=json: schedule: is invalid.")
    assert explain(answer) == "Google Cloud refused the request: schedule: is invalid"


def test_version_option_prints_the_version() -> None:
    assert CliRunner().invoke(main.app, ["--version"]).stdout.startswith("trainmaster ")
