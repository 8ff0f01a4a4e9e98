"""A folder without `setup.py` becomes a job: its files, its requirements and its command run on a
VM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from trainmaster_emulators.checkout import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.heavy(
        fact="a folder with a command is a whole job",
        quick="`integration/package/test_folders.py` with pip and processes",
    ),
]

TRAIN = """
import sys, joblib
from lib.helper import words

print(words(sys.argv[1:]), joblib.__name__)
"""


def test_command_runs_in_a_copy_of_the_folder_with_its_requirements(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text(
        "def words(texts): return 'helper says ' + ' '.join(texts)\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").write_text("joblib\n")  # the runtime has it: pip needs no index
    trainmaster = str(ROOT / ".venv" / "bin" / "trainmaster")
    options = [
        "--folder",
        str(tmp_path),
        "--region=us-central1",
        "--runtime-version=scikit-learn-1.9",
        "--wait",
    ]
    done = lab.stack.run(
        trainmaster,
        "submit",
        "folder_1",
        *options,
        "--",
        "python",
        "train.py",
        "--epochs",
        "3",
        timeout_s=300,
    )
    assert done.returncode == 0, done.stderr
    assert "helper says --epochs 3 joblib" in lab.stack.run(trainmaster, "logs", "folder_1").stdout
