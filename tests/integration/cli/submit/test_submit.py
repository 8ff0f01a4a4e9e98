"""`trainmaster submit` with a job file, and `jobs wait` and `jobs cancel` after it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tests.integration.cli.conftest import Installation
from tests.support.jobs import START, a_spec
from trainmaster.core.events import CancelRequested
from trainmaster.errors import PermanentError
from trainmaster.flows.commit.record import record


def test_submit_of_job_file_stores_the_job(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump(a_spec()))
    result = installation.run("submit", str(file), "--format", "json", "--labels", "team=vision")
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith("digits_")
    view = json.loads(result.stdout)
    assert (view["jobId"], view["state"], view["labels"]) == (
        job.job_id,
        "QUEUED",
        {"team": "vision"},
    )
    assert f"Job [{job.job_id}] submitted successfully." in result.stderr


def test_submit_fills_the_time_into_the_job_id(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"jobId": "nightly_{time:%Y}", **a_spec()}))
    result = installation.run("submit", str(tmp_path / "job.json"), "--format=json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["jobId"] == f"nightly_{datetime.now(UTC):%Y}"


def test_submit_of_invalid_job_reports_every_problem_and_sends_nothing(
    installation: Installation,
) -> None:
    result = installation.run("submit", "no-id!", "--region=moon", "--module-name=t")
    assert isinstance(result.exception, PermanentError)
    assert all(field in str(result.exception) for field in ("jobId", "region", "packageUris"))
    assert installation.store.recent_jobs(9) == ()


def test_submit_with_used_job_id_is_refused(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    again = installation.run("submit", str(file))
    assert isinstance(again.exception, PermanentError)
    assert "A job with this id already exists." in str(again.exception)


def test_async_is_accepted_but_not_together_with_waiting(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert isinstance(
        installation.run("submit", str(file), "--async", "--stream-logs").exception, PermanentError
    )
    assert installation.run("submit", str(file), "--async").exit_code == 0


def test_wait_for_cancelled_job_exits_with_status_1(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    record(CancelRequested("digits_1", "me", START), installation.deps)
    result = installation.run("jobs", "wait", "digits_1")
    assert (result.exit_code, result.stdout) == (
        1,
        "digits_1: CANCELLED: Job is cancelled by the user\n",
    )
    assert "digits_1: CANCELLED" in result.stderr


def test_cancel_may_be_repeated_but_needs_a_job(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    for _ in range(2):
        result = installation.run("jobs", "cancel", "digits_1")
        assert (result.exit_code, result.stdout) == (0, "digits_1: CANCELLED\n")
    unknown = installation.run("jobs", "cancel", "unknown_1")
    assert isinstance(unknown.exception, PermanentError)


def test_job_ids_are_completed(installation: Installation, tmp_path: Path) -> None:
    from trainmaster.cli.options import complete_job_id

    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    assert (complete_job_id("dig"), complete_job_id("x")) == (["digits_1"], [])


def test_submit_without_a_job_names_what_is_missing(installation: Installation) -> None:
    assert "name a job file" in str(installation.run("submit", "--region=us-central1").exception)
