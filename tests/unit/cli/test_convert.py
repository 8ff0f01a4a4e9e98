"""`trainmaster convert` and `submit`: what a task of another tool means."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli.main import app
from trainmaster.errors import PermanentError

TASK = """
name: finetune
workdir: .
resources: {infra: gcp/us-central1, accelerators: "A100:8"}
setup: apt-get install -y ffmpeg
run: torchrun train.py
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    return path


def test_convert_prints_the_job_file_and_says_what_it_leaves_out(task: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(task)])
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["trainingInput"] == {
        "region": "us-central1",
        "scaleTier": "CUSTOM",
        "masterType": "a2-highgpu-8g",
        "args": ["torchrun", "train.py"],
    }
    assert "trainmaster submit job.yaml --folder ." in result.stderr
    assert "setup: apt-get install: build a container image" in result.stderr


def test_submit_answers_a_task_with_the_job_file_that_it_means(task: Path) -> None:
    result = CliRunner().invoke(app, ["submit", str(task)])
    assert isinstance(result.exception, PermanentError)
    answer = str(result.exception)
    assert "is a task of SkyPilot, and no job file" in answer
    assert "masterType: a2-highgpu-8g" in answer
    assert f"trainmaster convert {task} > job.yaml" in answer
