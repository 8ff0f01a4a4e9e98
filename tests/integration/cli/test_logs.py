"""`trainmaster logs`: output as text and JSON, filters, and following a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cli.conftest import Installation
from tests.integration.logging.cloud import an_entry
from tests.support.jobs import a_spec
from trainmaster.agent.reporting.serial_console import Loss
from trainmaster.cli.logs import TRIES, follow_log, has_ended, history_end, with_retries
from trainmaster.cli.losses import describe_losses
from trainmaster.core.model.job import CUSTOM_JOB_PREFIX
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.ports import Loaded
from trainmaster.presentation.log_reader import DELAY_MAX_S, LogLine, LogReader
from trainmaster_local.memory.store import MemoryStore


@pytest.fixture
def logged(installation: Installation, tmp_path: Path) -> Installation:
    """An installation with a job that has three log lines."""
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    write_line(installation, "hello", "worker-replica-0", "1", severity="INFO")
    write_line(installation, "bad", "worker-replica-1", "2", severity="ERROR")
    write_line(
        installation, "epoch 1", "master-replica-0", "3", severity="INFO", more={"loss": 0.5}
    )
    return installation


def write_line(
    installation: Installation,
    text: str,
    task: str,
    vm: str,
    severity: str = "INFO",
    more: dict[str, float] | None = None,
    job: str = "digits_1",
) -> None:
    labels = {
        "ml.googleapis.com/job_id": job,
        "ml.googleapis.com/task_name": task,
        "trainmaster/vm": vm,
    }
    entry = an_entry("", labels=labels, severity=severity, timestamp=now())
    del entry["textPayload"]
    installation.cloud.write({**entry, "jsonPayload": {"message": text, **(more or {})}})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "001Z"


def test_logs_in_a_pipe_are_plain_lines(logged: Installation) -> None:
    done = logged.run("logs", "digits_1")
    assert done.exit_code == 0, done.output
    assert [line.split(None, 1)[1] for line in done.stdout.splitlines()] == [
        "INFO     worker-replica-0   hello",
        "ERROR    worker-replica-1   bad",
        "INFO     master-replica-0   epoch 1",
    ]


def test_logs_as_json_are_one_object_per_line(logged: Installation) -> None:
    done = logged.run(
        "jobs", "logs", "digits_1", "--format", "json", "--task-name", "master-replica-0"
    )
    (line,) = [json.loads(text) for text in done.stdout.splitlines()]
    assert (line["message"], line["task"], line["payload"]) == (
        "epoch 1",
        "master-replica-0",
        {"loss": 0.5},
    )


def test_logs_are_filtered_by_severity_and_age(logged: Installation) -> None:
    severe = logged.run("logs", "digits_1", "--severity", "warning").stdout
    assert "bad" in severe
    assert "hello" not in severe
    now_utc = datetime.now(UTC)
    for since in ("1h", "1h30m", f"{now_utc:%Y-%m-%d}", f"{now_utc - timedelta(hours=1):%FT%TZ}"):
        assert len(logged.run("logs", "digits_1", "--since", since).stdout.splitlines()) == 3
    assert logged.run("logs", "digits_1", "--since", now_utc.isoformat()).stdout == ""


@pytest.mark.parametrize(
    ("option", "value", "answer"),
    [
        ("--since", "yesterday", "must be an age, such as 90m, 2h or 1.5d, or a time in UTC"),
        ("--since", "-5m", "must be an age"),
        ("--since", "9" * 30, "must be an age"),
        ("--since", "2199-01-01", "2199-01-01 is in the future"),
        ("--severity", "LOUD", "must be one of DEFAULT, DEBUG, INFO"),
    ],
)
def test_wrong_value_of_a_filter_of_logs_is_answered_with_valid_ones(
    logged: Installation, option: str, value: str, answer: str
) -> None:
    refused = logged.run("logs", "digits_1", option, value)
    assert refused.exit_code == 2
    assert f"Invalid value for {option}: {answer}" in refused.stderr


@pytest.mark.parametrize("name", ["worker-0", "worker-replica-0"])
def test_logs_of_one_replica_are_found_by_each_of_its_names(
    logged: Installation, name: str
) -> None:
    lines = logged.run("logs", "digits_1", "--task-name", name).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["hello"]


def test_logs_of_a_replica_that_the_job_does_not_have_are_refused(logged: Installation) -> None:
    refused = logged.run("logs", "digits_1", "--task-name", "worker-7")
    assert "digits_1 has no replica worker-7. Its replicas: chief-0" in str(refused.exception)


def test_log_is_complete_soon_after_the_end_of_its_job(logged: Installation) -> None:
    """`history_end` is the time before which the log no longer grows; None: it is complete."""
    loaded, at = logged.store.load("digits_1"), datetime.now(UTC)
    assert loaded is not None
    running = loaded.state.job
    assert history_end(running, at) == at - timedelta(seconds=DELAY_MAX_S)
    ended = replace(running, ended_at=at)
    assert history_end(ended, at + timedelta(seconds=1)) is not None
    assert history_end(ended, at + timedelta(seconds=60)) is None, "no line can be later than this"


LATE = "trainmaster.cli.logs.LATE_LINES_S"


def test_follow_continues_after_the_end_until_no_more_lines_arrive(
    logged: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmaster.wiring.log_reader import log_entries

    shown: list[LogLine] = []
    polls: list[float] = []

    def count_polls(_: float) -> None:
        polls.append(0)
        if len(polls) == 2:
            write_line(logged, "last line", "worker-replica-0", "1")
        if len(polls) == 4:
            monkeypatch.setattr(LATE, 0)

    monkeypatch.setattr(LATE, 3_600)
    reader = LogReader(log_entries().page, "digits_1")
    follow_log(reader, lambda: True, shown.extend, sleep=count_polls)
    assert len(polls) == 4
    assert [line.message for line in shown] == ["hello", "bad", "epoch 1", "last line"]


def test_logs_of_custom_job_are_found_by_its_public_id(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"jobId": f"{CUSTOM_JOB_PREFIX}7", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    write_line(installation, "hello", "workerpool0-0", "1", job="7")
    assert "hello" in installation.run("logs", f"{CUSTOM_JOB_PREFIX}7").stdout


def test_follow_retries_transient_errors_and_stops_at_permanent_ones(
    logged: Installation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainmaster.wiring.log_reader import log_entries

    monkeypatch.setattr(LATE, 0)
    errors: list[Exception] = [TemporaryError(text) for text in ("reset", "slow down", "down")]
    shown: list[LogLine] = []

    def page(text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        if errors:
            raise errors.pop(0)
        return log_entries().page(text, token)

    reader = LogReader(with_retries(page, sleep=lambda _: None), "digits_1")
    follow_log(reader, lambda: True, shown.extend, sleep=lambda _: None)
    assert [line.message for line in shown] == ["hello", "bad", "epoch 1"]
    assert capsys.readouterr().err.count("retrying") == 3
    errors.append(PermanentError("no such project"))
    with pytest.raises(PermanentError, match="no such project"):
        with_retries(page)("", "")


def test_losses_of_each_kind_and_replica_are_counted_for_why(logged: Installation) -> None:
    loaded = logged.store.load("digits_1")
    assert loaded is not None
    from trainmaster.wiring.log_reader import log_entries

    page = log_entries().page
    assert describe_losses(page, loaded.state.job) == []
    losses = [
        (Loss.LINES, "master", 1),
        (Loss.LINES, "worker", 2500),
        (Loss.LINES, "worker", 41),
        (Loss.MEASUREMENTS, "master", 10),
        (Loss.MEASUREMENTS, "master", 1),
        (Loss.REPORTS, "worker", 1),
    ]
    for number, (loss, task, count) in enumerate(losses):
        labels = {
            "ml.googleapis.com/job_id": "digits_1",
            "ml.googleapis.com/task_name": f"{task}-replica-0",
            **loss.labels(count),
        }
        entry = an_entry(f"gap {number}", labels=labels, timestamp=now(), severity="WARNING")
        logged.cloud.write(entry)
    assert [sentence.split(":")[0] for sentence in describe_losses(page, loaded.state.job)] == [
        "1 line of master-replica-0 is not in the log",
        "2541 lines of worker-replica-0 are not in the log",
        "11 measurements of the metric that master-replica-0 reported are not in its trial",
        "1 report of the use of worker-replica-0 and of its progress is not in Cloud Monitoring",
    ]


def test_log_that_is_not_followed_ends_if_the_service_cannot_be_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def page(text: str, token: str) -> tuple[Sequence[Mapping[str, Any]], str]:
        raise TemporaryError("cannot connect")

    with pytest.raises(TemporaryError, match="cannot connect"):
        with_retries(page, sleep=lambda _: None, tries=TRIES)("", "")
    assert capsys.readouterr().err.count("retrying") == TRIES - 1


def test_has_ended_is_false_after_a_transient_error(capsys: pytest.CaptureFixture[str]) -> None:
    class FailingStore(MemoryStore):
        def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
            raise TemporaryError("deadline exceeded")

    assert not has_ended(FailingStore(), "digits_1")
    assert has_ended(MemoryStore(), "digits_1"), "a job that was removed counts as ended"
    assert "deadline exceeded" in capsys.readouterr().err


def test_message_with_several_lines_is_printed_as_several_rows(logged: Installation) -> None:
    write_line(logged, "two\nlines", "service", vm="", severity="ERROR")
    rows = logged.run("logs", "digits_1", "--task-name", "service").stdout.splitlines()
    assert [row.split()[-1] for row in rows] == ["two", "lines"]
