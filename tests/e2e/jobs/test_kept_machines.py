"""What a program has left on a kept machine is hidden from the next job, in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from trainmaster_emulators.checkout import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.heavy(
        fact="a kept machine shows nothing of the last job to the next one",
        quick=(
            "`unit/agent/setup/test_previous_tenure.py`, `unit/flows/test_kept_machines_secret.py`"
        ),
    ),
]

LEAVE = """
import os, pathlib, site, subprocess, tempfile

subprocess.Popen(["env", "-i", "setsid", "sleep", "97731"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "97732"], {})
    os._exit(0)
for folder in (tempfile.gettempdir(), os.getcwd(), site.getusersitepackages()):
    pathlib.Path(folder, "left_97733.py").write_text("x = 1")
deep = pathlib.Path(tempfile.gettempdir(), "left_97733", "deep")
deep.mkdir(parents=True)
print("everything is left")
"""
LOOK = """
import os, pathlib, tempfile

found = []
for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        words = process.read_bytes().split(b"\\0")
    except OSError:
        continue
    found += [word.decode() for word in words if word in (b"97731", b"97732")]
for folder in (tempfile.gettempdir(), os.getcwd()):
    found += [str(path) for path in pathlib.Path(folder).rglob("*97733*")]
try:
    import left_97733
    found.append(left_97733.__file__)
except ImportError:
    pass
print("found:", found)
"""


def run(lab: Lab, job_id: str, program: Path) -> str:
    """Run a job that keeps its machine. Return what its program printed."""
    trainmaster = str(ROOT / ".venv" / "bin" / "trainmaster")
    options = ["--folder", str(program.parent), "--region=us-central1", "--keep=5m", "--wait"]
    runtime = "--runtime-version=scikit-learn-1.9"
    command = ["--", "python", program.name]
    done = lab.stack.run(trainmaster, "submit", job_id, *options, runtime, *command, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return lab.stack.run(trainmaster, "logs", job_id, "--program").stdout


def test_next_job_finds_no_process_no_file_and_no_package_of_the_last_one(
    lab: Lab, tmp_path: Path
) -> None:
    for name, text in (("leave.py", LEAVE), ("look.py", LOOK)):
        (tmp_path / name).write_text(text)
    assert "everything is left" in run(lab, "leaves_1", tmp_path / "leave.py")
    assert "found: []" in run(lab, "looks_1", tmp_path / "look.py")
    job = lab.state("looks_1").job
    assert (job.set_id, job.tenure) == ("leaves_1", 2), "it ran on the same VM"
    assert "takes 1 kept machine of leaves_1" in lab.story("looks_1")
    trainmaster = str(ROOT / ".venv" / "bin" / "trainmaster")
    assert lab.stack.run(trainmaster, "machines", "--release", "looks_1").returncode == 0
    lab.until(lambda: not lab.fleet.list_vms("leaves_1"), within_s=60)
