"""The built-in algorithms as programs, with the Python of their runtime image, on the data of the
examples.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ("boosted_trees", "xgboost_dist", "linear_learner", "wide_deep_learner", "tab_net")
FRAMEWORKS = {"boosted_trees": "scikit-learn", "xgboost_dist": "scikit-learn"}
"""Algorithm → runtime image; of all others: tensorflow."""


def python_of(algorithm: str) -> Path:
    """Return the Python of the algorithm's runtime image.

    A test that needs it fails if it is missing.
    """
    python = ROOT / ".images" / FRAMEWORKS.get(algorithm, "tensorflow") / "bin" / "python"
    if not python.exists():
        pytest.fail(
            f"there is no runtime image at {python.parents[1]}: build it with `make images`"
        )
    return python


@dataclass(frozen=True)
class Run:
    """A finished run of an algorithm."""

    exit_status: int
    output: str
    job_dir: Path

    @property
    def metrics(self) -> dict[str, Any]:
        assert self.exit_status == 0, self.output
        found: dict[str, Any] = json.loads((self.job_dir / "metrics.json").read_text())
        return found


def start(
    algorithm: str, job_dir: Path, arguments: list[str], variables: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start an algorithm from a folder that has the package `algorithms` only, as on a VM.

    Beside it, TensorFlow would take `trainmaster/packaging` for the `packaging` of PyPI.
    """
    folder = job_dir.parent / "package"
    folder.mkdir(exist_ok=True)
    if not (folder / "algorithms").exists():
        (folder / "algorithms").symlink_to(ROOT / "shared" / "trainmaster" / "algorithms")
    command = [
        str(python_of(algorithm)),
        "-m",
        f"algorithms.{algorithm}",
        *arguments,
        "--job-dir",
        str(job_dir),
    ]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **variables}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the data of all examples: `NAME/FILE.csv`."""
    folder = tmp_path_factory.mktemp("algorithms")
    script = ROOT / "examples" / "algorithm_data.py"
    names = [f"algorithm_{example}" for example in EXAMPLES]
    command = [str(python_of("boosted_trees")), str(script), *names, str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "data"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Return a function that runs an algorithm to its end in one job directory."""

    def run_algorithm(algorithm: str, *arguments: str, **variables: str) -> Run:
        process = start(algorithm, tmp_path / "job", list(arguments), variables)
        output, _ = process.communicate(timeout=280)
        return Run(process.returncode, output, tmp_path / "job")

    return run_algorithm
