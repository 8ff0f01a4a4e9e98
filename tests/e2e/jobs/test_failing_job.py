"""A program that fails again and again, looked at with the commands while its job runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from trainmaster_emulators.checkout import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.heavy(
        fact="a job that keeps failing says so in each command while it runs",
        quick="`integration/cli/test_failing_job.py`, `unit/console/test_failing_job.py`",
    ),
]

JOB = "failing_1"
TRAIN = """
import random

name = "".join(random.choices("abcdefgh", k=20))  # never twice the same failure
open(f"data/{name}.csv")
"""
ERROR = "FileNotFoundError: [Errno 2] No such file or directory: 'data/"
PLACE = "train.py:5)"


def test_commands_name_the_error_and_its_line_after_the_second_failure(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    trainmaster = str(ROOT / ".venv" / "bin" / "trainmaster")
    options = ["--folder", str(tmp_path), "--region=us-central1"]
    options += ["--runtime-version=scikit-learn-1.9"]
    submitted = lab.stack.run(
        trainmaster, "submit", JOB, *options, "--", "python", "train.py", timeout_s=120
    )
    assert submitted.returncode == 0, submitted.stderr

    def fails_again() -> bool:
        (replica,) = lab.state(JOB).replicas
        return replica.failing is not None and replica.failing.is_shown

    lab.until(fails_again, within_s=120)
    why = lab.stack.run(trainmaster, "why", JOB).stdout
    (row,) = [line for line in why.splitlines() if line.startswith("Failing: ")]
    assert f" in a row, last {ERROR}" in row
    assert PLACE in row
    assert "The job is FAILED after at most " in why
    listed = lab.stack.run(trainmaster, "jobs", "list").stdout
    assert f" in a row, last {ERROR}" in listed
    described = lab.stack.run(trainmaster, "jobs", "describe", JOB, "--format", "json").stdout
    failing = json.loads(described)["trainmaster"]["failing"]
    assert failing["failures"] >= 2
    assert failing["lastFailure"].startswith(ERROR)
    lab.until(lambda: "The job is failing: 2 in a row" in log_of(lab, trainmaster), within_s=60)
    lab.cancel(JOB)


def log_of(lab: Lab, trainmaster: str) -> str:
    return lab.stack.run(trainmaster, "logs", JOB).stdout
