"""A launcher whose ranks have exited 0, and which waits for those of other machines.

A launcher such as torchrun starts the ranks (training processes) of its machine, and ends only when
those of all machines have ended. Under `has_left_peers`, its ranks have succeeded and it only waits
for others, so that its own end by a lost peer is no failure.

The launchers here are real processes: scripts with their names, whose ranks use CPU time as ranks
do. By it, a rank is told from a helper process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainmaster.agent.program.program import Program
from trainmaster.agent.reporting.serial_console import Console

WORK = "import time\nwhile time.process_time() < 0.6: pass\n"
HELPER = "import platform\n"
LAUNCHER = """\
# Starts a process for each argument, its source; waits for those that do not sleep.
import subprocess, sys, time
for source in sys.argv[1:]:
    rank = subprocess.Popen([sys.executable, "-c", source])
    if "sleep" not in source:
        status = rank.wait()
        if status:
            print(f"failed (exitcode: {status}) local_rank: 0", file=sys.stderr)
print("waiting", flush=True)
time.sleep(600)
"""
Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []

    def start(name: str, *ranks: str) -> Program:
        script = tmp_path / name
        script.write_text(LAUNCHER)
        workspace = SimpleNamespace(
            console=cast("Console", SimpleNamespace(write=lambda *_: None)),
            work=tmp_path,
            family=None,
        )
        program = Program(
            [sys.executable, str(script), *ranks], cast("Any", workspace), env={}, cwd=tmp_path
        )
        programs.append(program)
        deadline = time.monotonic() + 60
        while "waiting" not in program.last_lines():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return program

    yield start
    for program in programs:
        program.kill()
        program.wait()


@pytest.mark.parametrize(
    ("name", "ranks", "has_left"),
    [
        pytest.param("torchrun", (WORK,), True, id="its rank has exited 0"),
        pytest.param("accelerate", (HELPER, WORK), True, id="another launcher, with a helper"),
        pytest.param(
            "torchrun", (WORK, "import time; time.sleep(600)"), False, id="another rank runs"
        ),
        pytest.param("torchrun", (HELPER,), False, id="its ranks have not started"),
        pytest.param("torchrun", (WORK + "1 / 0",), False, id="its rank has failed"),
        pytest.param(
            "torchrun",
            (WORK + "import os; os.kill(os.getpid(), 9)",),
            False,
            id="its rank was killed",
        ),
        pytest.param("train.py", (WORK,), False, id="no launcher"),
        pytest.param("deepspeed", (WORK,), False, id="a launcher that does not wait"),
    ],
)
def test_launcher_has_left_its_peers_if_its_ranks_have_exited_0(
    start: Start, name: str, ranks: tuple[str, ...], *, has_left: bool
) -> None:
    assert start(name, *ranks).has_left_peers() is has_left
