"""`trainmaster top`, and idle GPUs in `describe`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich import console as rich_console

from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec
from tests.support.metrics import FakeMetrics
from tests.support.world import World
from trainmaster.cli import top as module
from trainmaster.cli.top import notes, use_view, watch
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.user_requests import cancel_job
from trainmaster.ports.metrics import Metric, MetricsDeniedError
from trainmaster.presentation.utilization import read_latest
from trainmaster.wiring import metrics as wiring


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> FakeMetrics:
    found = FakeMetrics()
    monkeypatch.setattr(wiring, "metric_reader", lambda *_: found)
    return found


@pytest.fixture
def job_id(installation: Installation) -> str:
    """A job that runs for an hour."""
    world = World(now=datetime.now(UTC) - timedelta(hours=1), store=installation.store)
    gpus = {"acceleratorConfig": {"count": "2", "type": "NVIDIA_TESLA_T4"}}
    world.submit(a_spec(workerConfig=gpus))
    world.deliver()
    world.report_all_ready()
    return world.job_id


def test_table_has_a_row_for_each_replica(
    installation: Installation, metrics: FakeMetrics, job_id: str
) -> None:
    """A sample has the values of one minute each: 6e6 bytes that were sent are 100 kB/s."""
    now = datetime.now(UTC)
    metrics.add(Metric.CPU, "worker-1", now - timedelta(seconds=90), [0.1, 0.42])
    metrics.add(Metric.MEMORY, "worker-1", now - timedelta(seconds=30), [0.004])
    metrics.add(Metric.SENT, "worker-1", now - timedelta(seconds=90), [0, 6e6])
    for gpu, share in (("0", 0.97), ("1", 0.0)):
        metrics.add(Metric.GPU, "worker-1", now - timedelta(seconds=30), [share], gpu)
    result = installation.run("jobs", "top", job_id)
    assert result.exit_code == 0
    head, *rows = [line.split("  ") for line in result.stdout.splitlines()]
    assert [cell.strip() for cell in head if cell.strip()] == [
        column.upper() for column in module.COLUMNS
    ]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell.strip()] for row in rows}
    assert cells["worker 1"][:6] == ["42%", "0.4%", "97% 0%", "- -", "-", "100.0 kB/s"]
    assert cells["worker 1"][6].endswith(" s")
    assert cells["chief 0"] == ["-"] * 7


def test_json_has_shares_and_bytes(
    installation: Installation, metrics: FakeMetrics, job_id: str
) -> None:
    metrics.add(Metric.CPU, "worker-0", datetime.now(UTC), [0.25])
    view = json.loads(installation.run("jobs", "top", job_id, "--format", "json").stdout)
    assert view["jobId"] == job_id
    worker = next(replica for replica in view["replicas"] if replica["replica"] == "worker-0")
    assert (worker["cpu"], worker["memory"], worker["gpus"]) == (0.25, None, [])
    assert datetime.fromisoformat(worker["sampleTime"]) <= datetime.now(UTC)


def test_table_without_values_says_why(
    installation: Installation, metrics: FakeMetrics, job_id: str
) -> None:
    assert (
        "roles/monitoring.metricWriter" in installation.run("jobs", "top", job_id, "--once").stderr
    )


def test_missing_permission_ends_the_command_with_the_role(
    installation: Installation, metrics: FakeMetrics, job_id: str
) -> None:
    metrics.error = MetricsDeniedError(
        "Reading metrics needs roles/monitoring.viewer on the project p"
    )
    result = installation.run("jobs", "top", job_id)
    assert isinstance(result.exception, PermanentError)
    assert "roles/monitoring.viewer" in str(result.exception)


def test_describe_names_idle_gpus(
    installation: Installation, metrics: FakeMetrics, job_id: str
) -> None:
    metrics.add(
        Metric.GPU, "worker-1", datetime.now(UTC) - timedelta(minutes=12), [0.0] * 13, gpu="1"
    )
    output = installation.run("jobs", "describe", job_id).stdout
    assert "GPUs: 1 of 1 GPU was idle for the last 10 minutes" in output


@pytest.mark.parametrize("error", [MetricsDeniedError("no role"), TemporaryError("no answer")])
def test_describe_works_without_metrics(
    installation: Installation, metrics: FakeMetrics, job_id: str, error: Exception
) -> None:
    metrics.error = error
    result = installation.run("jobs", "describe", job_id)
    assert result.exit_code == 0
    assert f"Cannot find out whether the job's GPUs are idle: {error}" in result.stderr


def test_watch_updates_until_the_job_ends_and_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    world, metrics, output = World(), FakeMetrics(error=TemporaryError("no answer")), StringIO()
    world.start_running()
    metrics.add(Metric.CPU, "worker-0", datetime.now(UTC), [0.5])

    def end_after_a_retry(_: float) -> None:
        if metrics.error:
            metrics.error = None
        else:
            cancel_job(world.job_id, "anna", world.deps)

    terminal = rich_console.Console(file=output, force_terminal=True, width=120)
    monkeypatch.setattr(rich_console, "Console", lambda: terminal)
    watch(world.job, world.store, metrics, end_after_a_retry)
    assert "retrying: no answer" in output.getvalue()
    assert "50%" in output.getvalue()


def test_job_without_samples_has_a_note_and_no_sample_times(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    world.submit()
    assert "agents report while their program runs" in notes(world.job, (), "")[0]
    uses = read_latest(FakeMetrics(), world.job, world.now)
    assert all(replica["sampleTime"] is None for replica in use_view(world.job, uses)["replicas"])
