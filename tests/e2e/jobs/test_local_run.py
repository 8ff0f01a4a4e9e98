"""`trainmaster local run` with the smallest example: complete, interrupted, without emulators."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.stack import clean_environment, eventually
from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster_emulators.process import state
from trainmaster_emulators.process.processes import list_processes

HEAVY = pytest.mark.heavy(
    fact="`trainmaster local run` works on the emulators",
    quick="the same module on adapters in memory; many jobs of `e2e/jobs` on the emulators",
)

pytestmark = pytest.mark.e2e


def run(*options: str, state_dir: Path, **variables: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "trainmaster.cli.main",
        "local",
        "run",
        "sklearn_digits",
        "--state-dir",
        str(state_dir),
    ]
    return subprocess.Popen(
        [*command, *options],
        env={**clean_environment(), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def is_stopped(state_dir: Path) -> bool:
    page = state.read(state_dir)
    return page is not None and not list_processes(page.id)


def check_output(output: str, state_dir: Path) -> None:
    for words in (
        "PREPARING",
        "SUCCEEDED",
        "[rule 2]",
        "metrics",
        "accuracy",
        "model",
        "VMs left: 0",
        "total",
        "docs/tutorial.md",
    ):
        assert words in output, output
    assert "\x1b[" not in output, "no colours, because the output is not a terminal"
    metrics = json.loads(
        (
            state_dir / "storage" / "trainmaster-local" / "sklearn_digits" / "metrics.json"
        ).read_text()
    )
    assert metrics["accuracy"] >= 0.95
    assert is_stopped(state_dir)


@HEAVY  # tests/e2e has many jobs on emulators
def test_local_run_prints_the_job_and_its_results(tmp_path: Path) -> None:
    process = run(state_dir=tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "gsutil cp" in output
    check_output(output, tmp_path)


def test_local_run_without_emulators_uses_memory_and_reports_it(tmp_path: Path) -> None:
    variables = {"CLOUDSDK_ROOT_DIR": str(tmp_path / "nowhere"), "DOCKER_HOST": "tcp://127.0.0.1:9"}
    state_dir, programs = tmp_path / "state", tmp_path / "programs"
    programs.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in ("gcloud", "gsutil"):
            (programs / program.name).symlink_to(program)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs)])
    process = run(state_dir=state_dir, PATH=path, **variables)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if "in-memory adapters" in line]
    assert "cloud-firestore-emulator" in line
    assert output.count("(with the client library: gsutil is not installed)") == 2, output
    check_output(output, state_dir)


@HEAVY
def test_interrupted_local_run_leaves_no_process(tmp_path: Path) -> None:
    process = run(state_dir=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "PREPARING" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    eventually(lambda: is_stopped(tmp_path), within_s=40)


def test_local_run_of_an_unknown_example_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["local", "run", "nothing", "--state-dir", str(tmp_path)])
    assert isinstance(refused.exception, PermanentError)
    assert str(refused.exception).startswith("there is no example nothing")
