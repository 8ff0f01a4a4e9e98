"""Commands that a shell's scripts start, when the scripts start each other."""

from __future__ import annotations

import pytest

from trainmaster.program_files.findings import ProgramFiles
from trainmaster.program_files.started_commands import started_commands

LINES = 60
"""Lines that start scripts. Followed to the fourth script, they would be millions of commands."""


def files_of(scripts: dict[str, str]) -> ProgramFiles:
    """Return a folder with these texts by name, each to be read once for each line that starts it
    at most.
    """
    left = dict.fromkeys(scripts, 2 * LINES)

    def read(name: str) -> bytes:
        left[name] -= 1
        assert left[name] >= 0, f"{name} is read again and again"
        return scripts[name].encode()

    return ProgramFiles(frozenset(scripts), read)


@pytest.mark.parametrize(
    "scripts",
    [
        pytest.param({"run.sh": "bash run.sh\n" * LINES + "torchrun train.py\n"}, id="itself"),
        pytest.param(
            {
                "run.sh": "bash other.sh\n" * LINES + "torchrun train.py\n",
                "other.sh": "bash run.sh\n" * LINES,
            },
            id="each other",
        ),
    ],
)
def test_scripts_that_start_each_other_are_read_once(scripts: dict[str, str]) -> None:
    assert list(started_commands(["bash", "run.sh"], files_of(scripts))) == [
        ["torchrun", "train.py"]
    ]


def test_scripts_may_start_others() -> None:
    scripts = {"run.sh": "set -e\nbash steps/train.sh", "steps/train.sh": "torchrun train.py"}
    assert list(started_commands(["bash", "run.sh"], files_of(scripts))) == [
        ["set", "-e"],
        ["torchrun", "train.py"],
    ]
