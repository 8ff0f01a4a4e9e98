"""`trainmaster logs`: a job's lines as a person and as a program reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.logs import follow_log, has_ended, patient
from shared.core.model.job import CUSTOM_JOB_PREFIX
from shared.errors import TemporaryError
from shared.gcp.cloud_logging import RefusedError
from shared.memory.store import MemoryStore
from shared.ports import Loaded
from shared.presentation.log_reader import LogLine, LogReader
from tests.integration.cli.conftest import Installation
from tests.integration.logging.cloud import an_entry
from tests.support.jobs import a_spec


@pytest.fixture
def logged(installation: Installation, tmp_path: Path) -> Installation:
    """A job, and three lines of it."""
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    say(installation, "hello", "worker-replica-0", "1", severity="INFO")
    say(installation, "bad", "worker-replica-1", "2", severity="ERROR")
    say(installation, "epoch 1", "master-replica-0", "3", severity="INFO", more={"loss": 0.5})
    return installation


def say(
    installation: Installation,
    text: str,
    task: str,
    vm: str,
    severity: str = "INFO",
    more: dict[str, float] | None = None,
    job: str = "digits_1",
) -> None:
    labels = {"ml.googleapis.com/job_id": job, "ml.googleapis.com/task_name": task, "trainmaster/vm": vm}
    entry = an_entry("", labels=labels, severity=severity, timestamp=now())
    del entry["textPayload"]
    installation.cloud.write({**entry, "jsonPayload": {"message": text, **(more or {})}})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "001Z"


def test_lines_are_plain_and_whole_where_they_are_piped(logged: Installation) -> None:
    done = logged.run("logs", "digits_1")
    assert done.exit_code == 0, done.output
    assert [line.split(None, 1)[1] for line in done.stdout.splitlines()] == [
        "INFO     worker-replica-0   hello",
        "ERROR    worker-replica-1   bad",
        "INFO     master-replica-0   epoch 1",
    ]


def test_as_json_a_line_is_an_object(logged: Installation) -> None:
    done = logged.run("jobs", "logs", "digits_1", "--format", "json", "--task-name", "master-replica-0")
    (line,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (line["message"], line["task"], line["payload"]) == ("epoch 1", "master-replica-0", {"loss": 0.5})


def test_only_what_is_asked_for_is_shown(logged: Installation) -> None:
    severe = logged.run("logs", "digits_1", "--severity", "warning").stdout
    assert ("bad" in severe, "hello" in severe) == (True, False)
    assert len(logged.run("logs", "digits_1", "--since", "1h").stdout.splitlines()) == 3


def test_following_goes_on_until_the_job_has_ended_and_said_its_last(logged: Installation) -> None:
    from shared.wiring.log_reader import logging

    seen: list[LogLine] = []
    looks: list[float] = []

    def pass_time(_: float) -> None:
        looks.append(0)
        if len(looks) == 2:
            say(logged, "last words", "worker-replica-0", "1")

    ended = datetime.now(UTC) + timedelta(seconds=0.5)
    reader = LogReader(logging().page, "digits_1")
    follow_log(reader, lambda: datetime.now(UTC) > ended and len(looks) > 1, seen.extend, sleep=pass_time)
    assert [line.message for line in seen] == ["hello", "bad", "epoch 1", "last words"]


def test_a_custom_jobs_log_is_known_by_its_number(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"jobId": f"{CUSTOM_JOB_PREFIX}7", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    say(installation, "hello", "workerpool0-0", "1", job="7")
    assert "hello" in installation.run("logs", f"{CUSTOM_JOB_PREFIX}7").stdout


def test_trouble_that_passes_does_not_end_the_following_and_a_refusal_does(
    logged: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    from shared.wiring.log_reader import logging

    answers: list[Exception] = [TemporaryError("reset"), RefusedError(429, "slow down"), RefusedError(503, "down")]
    seen: list[LogLine] = []

    def page(text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        if answers:
            raise answers.pop(0)
        return logging().page(text, token)

    reader = LogReader(patient(page, sleep=lambda _: None), "digits_1")
    follow_log(reader, lambda: True, seen.extend, sleep=lambda _: None)
    assert [line.message for line in seen] == ["hello", "bad", "epoch 1"]
    assert capsys.readouterr().err.count("trying again") == 3
    answers.append(RefusedError(403, "Permission denied"))
    with pytest.raises(RefusedError, match="Permission denied"):
        patient(page)("", "")


def test_a_store_that_cannot_be_read_is_no_end_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    class Troubled(MemoryStore):
        def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
            raise TemporaryError("deadline exceeded")

    assert not has_ended(Troubled(), "digits_1")
    assert has_ended(MemoryStore(), "digits_1"), "deleted meanwhile"
    assert "deadline exceeded" in capsys.readouterr().err


def test_a_message_of_several_lines_is_as_many_rows(logged: Installation) -> None:
    say(logged, "two\nlines", "service", "", severity="ERROR")
    rows = logged.run("logs", "digits_1", "--task-name", "service").stdout.splitlines()
    assert [row.split()[-1] for row in rows] == ["two", "lines"]
