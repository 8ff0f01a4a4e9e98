"""The commands `trainmaster simulate`, `python -m trainmaster_local.simulator`, `python -m
tests.sim.soak`.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.sim.soak import run_batch
from tests.support.jobs import a_spec
from trainmaster.cli.options import parse_duration
from trainmaster_local.cli.simulate import simulate
from trainmaster_local.simulator import __main__ as simulator


@pytest.fixture
def runner() -> Iterator[CliRunner]:
    yield CliRunner()
    logging.disable(logging.NOTSET)  # as a simulation leaves it


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(simulate)
    return app


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(a_spec(scheduling={"maxRunningTime": "36000s"})))
    return path


def test_simulate_without_preemptions_loses_no_work(
    runner: CliRunner, app: typer.Typer, job_file: Path
) -> None:
    result = runner.invoke(
        app,
        [
            str(job_file),
            "--seeds",
            "5",
            "--preemptions-per-hour",
            "0",
            "--duration",
            "2h",
            "--format",
            "json",
        ],
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["states"] == {"SUCCEEDED": 5}
    assert 2.0 < report["wall_h"]["p50"] < 2.1, "the duration and the start"
    vms = 3
    assert vms * 2.0 < report["vm_h"]["p50"] < vms * 2.1
    assert report["lost_h"] == {"p50": 0, "p90": 0}


def test_simulate_runs_a_job_of_a_built_in_algorithm(runner: CliRunner, app: typer.Typer) -> None:
    job_file = Path(__file__).parents[2] / "examples" / "algorithm_boosted_trees" / "job.yaml"
    result = runner.invoke(
        app, [str(job_file), "--seeds", "2", "--duration", "1h", "--format", "json"]
    )

    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["states"] == {"SUCCEEDED": 2}


def test_simulate_with_frequent_checkpoints_loses_less_work(
    runner: CliRunner, app: typer.Typer, job_file: Path
) -> None:
    def lost_h(checkpoint_every: str) -> float:
        options = [
            "--seeds",
            "4",
            "--preemptions-per-hour",
            "0.6",
            "--duration",
            "3h",
            "--format",
            "json",
        ]
        result = runner.invoke(
            app, [str(job_file), *options, "--checkpoint-every", checkpoint_every]
        )
        assert result.exit_code == 0, result.output
        report = json.loads(result.output)
        assert report["replacements"]["p90"] >= 1
        return float(report["lost_h"]["p90"])

    assert lost_h("60") > lost_h("5")


def test_simulate_counts_the_vms_and_restarts_of_a_gang(
    runner: CliRunner, app: typer.Typer, job_file: Path
) -> None:
    per_hour = 2
    options = ["--seeds", "20", "--preemptions-per-hour", str(per_hour), "--duration", "3h"]
    result = runner.invoke(app, [str(job_file), *options, "--format", "json"])
    report = json.loads(result.output)
    preemptions = per_hour * report["vm_h"]["p50"]  # the rate is that of each VM
    replacements, restarts = report["replacements"]["p50"], report["restarts"]["p50"]
    assert replacements == pytest.approx(preemptions, rel=0.4), "each preemption replaces one VM"
    # It also restarts all three programs. That counts once, or not at all if the next preemption
    # comes before they run again.
    assert 0.4 * preemptions < restarts <= replacements


@pytest.mark.parametrize(
    "document",
    [
        {"jobId": "nightly_{time:%Y%m%d}", **a_spec()},
        {"trainingInput": {"region": "us-central1", "runtimeVersion": "pytorch-2.13"}},
    ],
    ids=["of a schedule", "of a folder"],
)
def test_simulate_takes_the_job_files_of_schedules_and_folders(
    runner: CliRunner, app: typer.Typer, tmp_path: Path, document: dict[str, object]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(document))
    result = runner.invoke(app, [str(path), "--seeds", "1", "--duration", "1h"])
    assert result.exit_code == 0, result.output
    assert "SUCCEEDED: 100.0%" in result.output


def test_simulate_prints_a_table(runner: CliRunner, app: typer.Typer, job_file: Path) -> None:
    result = runner.invoke(app, [str(job_file), "--seeds", "3", "--duration", "90m"])
    assert result.exit_code == 0, result.output
    assert "SUCCEEDED: 100.0%" in result.output
    assert "VM-hours" in result.output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("30", 30), ("1h30m", 5400)],
)
def test_duration_with_or_without_unit_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text, "--duration") == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "soon", "0m", "inf", "1h30", "9" * 30])
def test_duration_that_is_invalid_is_a_usage_error_about_its_option(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be a time such as 90m") as refused:
        parse_duration(text, "--duration")
    assert "--duration" in refused.value.format_message()


def test_simulator_command_prints_the_same_trace_in_two_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them is this process. Hashes of strings differ between them, and with the hashes the
    order of sets.
    """
    options = ["--seed", "3", "--profile", "calm"]
    command = [sys.executable, "-m", "trainmaster_local.simulator", *options]
    first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    monkeypatch.setattr(sys, "argv", ["simulator", *options])
    assert simulator.main() == 0
    assert capsys.readouterr().out == first
    assert "decided" in first
    assert "SUCCEEDED" in first


def test_soak_batch_counts_histories_and_jobs(runner: CliRunner) -> None:
    tally = run_batch(range(10), ["calm", "programs"])
    assert tally.histories == 10
    assert sum(tally.states.values()) == 10
    assert not tally.failures
