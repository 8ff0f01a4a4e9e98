"""`trainmaster schedule …` against the Cloud Scheduler emulator."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.integration.scheduler.conftest import PROJECT, Emulator, Target
from tests.support.jobs import a_spec
from tests.support.stack import eventually
from trainmaster import settings
from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore

Run = Callable[..., Result]


@pytest.fixture
def run(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
    monkeypatch.setenv("TRAINMASTER_SCHEDULER_ENDPOINT", emulator.address)
    monkeypatch.setenv("CLOUDSDK_CORE_ACCOUNT", "anna@example.com")
    packages = MemoryObjects()
    packages.write(
        "gs://bucket/trainer-0.1.tar.gz",
        b"the package of a_spec()",
        content_type="application/gzip",
    )
    monkeypatch.setattr("trainmaster.wiring.objects.objects", lambda: packages)
    store = MemoryStore()
    monkeypatch.setattr("trainmaster.wiring.core_services.store", lambda: store)
    settings.settings.cache_clear()
    yield lambda *arguments: CliRunner().invoke(app, ["schedule", *arguments])
    settings.settings.cache_clear()


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "nightly.yaml"
    path.write_text(yaml.safe_dump(a_spec()))
    return str(path)


def test_schedule_is_created_replaced_and_listed(run: Run, job_file: str) -> None:
    created = run("create", "nightly", job_file, "--cron", "0 3 * * *")
    assert created.exit_code == 0, created.output
    assert created.stdout.startswith("created ")
    assert run("create", "nightly", job_file, "--cron", "30 3 * * *").stdout.startswith("replaced ")
    header, row = run("list").stdout.splitlines()
    assert header.split() == ["NAME", "CRON", "TIME_ZONE", "STATE", "NEXT", "LAST", "RESULT"]
    assert row.split() == [
        "nightly",
        "30",
        "3",
        "*",
        "*",
        "*",
        "Etc/UTC",
        "ENABLED",
        "2026-11-21T03:30:00Z",
    ]


def test_schedule_is_run_paused_resumed_and_deleted(
    run: Run, job_file: str, target: Target
) -> None:
    assert run("create", "nightly", job_file, "--cron", "0 3 * * *").exit_code == 0
    assert run("run", "nightly").stdout.startswith("nightly: started.")
    eventually(lambda: target.received)
    (message,) = json.loads(target.received[0].body)["messages"]
    assert message["attributes"] == {"source": "schedule:nightly/anna@example.com"}
    assert json.loads(base64.b64decode(message["data"]))["jobId"] == "nightly_{time:%Y%m%d_%H%M}"
    eventually(lambda: json.loads(run("list", "--format", "json").stdout)[0].get("lastAttemptTime"))
    assert json.loads(run("list", "--format", "json").stdout)[0]["result"] == "no job yet"
    for verb, state in (("pause", "PAUSED"), ("resume", "ENABLED")):
        assert run(verb, "nightly").exit_code == 0
        assert json.loads(run("list", "--format", "json").stdout)[0]["state"] == state
    assert run("delete", "nightly").exit_code == 0
    assert json.loads(run("list", "--format", "json").stdout) == []


def test_failed_attempt_is_shown_with_its_reason(run: Run, job_file: str, target: Target) -> None:
    account = f"nightly@{PROJECT}.iam.gserviceaccount.com"
    target.statuses = [409]
    created = run(
        "create",
        "nightly",
        job_file,
        "--cron",
        "0 3 * * *",
        "--submit-as",
        account,
        "--api",
        target.url,
    )
    assert created.exit_code == 0, created.output
    run("run", "nightly")
    eventually(lambda: "HTTP status 409" in run("list").stdout)
    assert target.received[0].path == f"/v1/projects/{PROJECT}/jobs"


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "delete"])
def test_unknown_schedule_is_named_in_the_error(run: Run, verb: str) -> None:
    failed = run(verb, "missing")
    assert isinstance(failed.exception, PermanentError)
    assert "us-central1 has no schedule missing" in str(failed.exception)
    assert "http" not in str(failed.exception)
