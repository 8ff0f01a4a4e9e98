"""The simulator as people run it: `trainmaster simulate`, `python -m simulator`, `python -m simulator.soak`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.simulate import simulate, span
from simulator.soak import batch
from tests.support.jobs import a_spec


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr("logging.disable", lambda *_: None)
    return CliRunner()


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


def test_without_preemptions_a_job_takes_its_time(runner: CliRunner, app: typer.Typer, job_file: Path) -> None:
    result = runner.invoke(
        app, [str(job_file), "--seeds", "5", "--preemptions-per-hour", "0", "--duration", "2h", "--format", "json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.output)
    assert said["ends"] == {"SUCCEEDED": 5}
    assert 2.0 < said["wall_h"]["p50"] < 2.1
    assert 6.0 < said["vm_h"]["p50"] < 6.3, "three VMs"
    assert said["lost_h"] == {"p50": 0, "p90": 0}


def test_preemptions_cost_time_and_work_and_checkpoints_save_it(
    runner: CliRunner, app: typer.Typer, job_file: Path
) -> None:
    def lost_h(checkpoint_every: str) -> float:
        options = ["--seeds", "12", "--preemptions-per-hour", "0.4", "--duration", "3h", "--format", "json"]
        result = runner.invoke(app, [str(job_file), *options, "--checkpoint-every", checkpoint_every])
        assert result.exit_code == 0, result.output
        said = json.loads(result.output)
        assert said["replacements"]["p90"] >= 1
        return float(said["lost_h"]["p90"])

    assert lost_h("60") > lost_h("5")


def test_the_report_is_a_table_for_people(runner: CliRunner, app: typer.Typer, job_file: Path) -> None:
    result = runner.invoke(app, [str(job_file), "--seeds", "3", "--duration", "90m"])
    assert result.exit_code == 0, result.output
    assert "SUCCEEDED: 100.0%" in result.output
    assert "VM-hours" in result.output


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("30", 30)])
def test_spans_of_time_are_read(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1h", "soon"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        span(text)


def test_a_seed_can_be_replayed_from_the_shell() -> None:
    command = [sys.executable, "-m", "simulator", "--seed", "3", "--profile", "calm"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    assert first.stdout == second.stdout
    assert "judged" in first.stdout
    assert "SUCCEEDED" in first.stdout


def test_a_soak_counts_what_it_did(runner: CliRunner) -> None:
    tally = batch(range(30), ["calm", "programs"])
    assert tally.histories == 30
    assert sum(tally.states.values()) == 30
    assert not tally.failures
