"""`trainmaster local run`, as a person at a terminal sees it: the lightest example, interrupted, without emulators."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulators.stack import state
from emulators.stack.processes import list_processes
from tests.support.stack import clean_environment, eventually

pytestmark = pytest.mark.e2e


def run(*options: str, state_dir: Path, **variables: str) -> subprocess.Popen[str]:
    # Whoever runs these tests in the background of a shell has SIGINT ignored, and every child inherits that.
    at_a_terminal = ["env", "--default-signal=INT"]
    command = [
        *at_a_terminal,
        sys.executable,
        "-m",
        "cli.main",
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


def nothing_is_left(state_dir: Path) -> bool:
    page = state.read(state_dir)
    return page is not None and not list_processes(page.id)


def test_an_example_runs_and_says_what_came_of_it(tmp_path: Path) -> None:
    process = run(state_dir=tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for said in (
        "gsutil cp",
        "PREPARING",
        "SUCCEEDED",
        "[rule 2]",
        "metrics",
        "accuracy",
        "model",
        "VMs left: 0",
        "total",
    ):
        assert said in output, output
    assert "\x1b[" not in output, "plain where it is not a terminal"
    metrics = json.loads((tmp_path / "storage" / "trainmaster-local" / "sklearn_digits" / "metrics.json").read_text())
    assert metrics["accuracy"] >= 0.95
    assert nothing_is_left(tmp_path)


def test_without_emulators_it_runs_in_memory_and_says_so_in_one_line(tmp_path: Path) -> None:
    process = run(state_dir=tmp_path, CLOUDSDK_ROOT_DIR=str(tmp_path / "nowhere"), DOCKER_HOST="tcp://127.0.0.1:9")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if "in memory" in line]
    assert "cloud-firestore-emulator" in line
    assert "SUCCEEDED" in output
    assert nothing_is_left(tmp_path)


def test_interrupted_in_the_middle_it_leaves_nothing_running(tmp_path: Path) -> None:
    process = run(state_dir=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "PREPARING" in line:
            break
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    eventually(lambda: nothing_is_left(tmp_path), within_s=40)


def test_an_example_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", "local", "run", "nothing", "--state-dir", str(tmp_path)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("trainmaster: no example nothing")
    assert "Traceback" not in done.stderr
