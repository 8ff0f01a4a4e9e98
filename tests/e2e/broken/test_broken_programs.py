"""Each broken program's cause is shown by one command, with type, message, file and line.

A life is one start of the program by one replica.
"""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from tests.e2e.broken.programs import PROGRAMS, SUBMIT, BrokenProgram
from tests.e2e.broken.walk import walk
from tests.e2e.conftest import Lab
from trainmaster_emulators.checkout import ROOT

HEAVY = pytest.mark.heavy(
    fact="one command shows the cause of each broken program, after two lives at most",
    quick="`unit/core/rules/test_remedies.py`, `unit/presentation/test_remedies.py`,"
    " `e2e/broken/test_broken_programs.py`",
)
QUICK = ("missing_file", "wrong_file_name")
"""One of each way: an error of the program, and a refusal."""

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def stories() -> list[object]:
    return [
        pytest.param(program, id=program.name, marks=() if program.name in QUICK else (HEAVY,))
        for program in PROGRAMS
    ]


@pytest.mark.parametrize("program", stories())
def test_one_command_shows_the_cause(program: BrokenProgram, lab: Lab, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = str(ROOT / ".venv" / "bin" / "trainmaster")
        return lab.stack.run(command, *arguments, home=tmp_path, timeout_s=800)

    seen = walk(program, f"{program.name}_{uuid.uuid4().hex[:8]}", run, tmp_path)
    assert seen.missing == (), seen.output
    if program.seen_in == SUBMIT:
        return
    assert seen.state == program.ends
    replicas = 1 + program.workers  # the primary, too
    assert seen.lives <= program.lives_max * replicas
