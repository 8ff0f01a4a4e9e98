"""The stacks of programs that hang: of real processes, in which order, and what is read
from them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.stack import eventually
from trainmaster.agent.program import program as program_module
from trainmaster.agent.program.process_table import process_uses
from trainmaster.agent.program.program import OUT_OF_MEMORY, Program
from trainmaster.agent.program.signal_receivers import is_catcher
from trainmaster.agent.program.stacks import (
    find_stacks,
    innermost_frames,
    print_stacks,
    without_modules,
)
from trainmaster.agent.program.tracebacks import parse_traceback
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.workspace import Workspace

PYTHON = [sys.executable, "-X", "faulthandler", "-c"]
CHILD = "import time\ndef load():\n  print('up', flush=True)\n  time.sleep(60)\nload()"
PARENT = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, lambda *_: sys.exit('a worker has died'))
def train():
    child.wait()
child = subprocess.Popen([*{PYTHON!r}, {CHILD!r}])
train()
"""
ABORTED = """\
something else
Fatal Python error: Aborted

Thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f0000000001 (most recent call first):
  File "/opt/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/opt/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/srv/trainer/task.py", line 7 in step
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy.linalg._umath_linalg, torch._C (total: 2)
"""
C_THREAD = ABORTED.replace(
    "Current thread 0x00007f0000000001", "Thread 0x00007f0000000001"
).replace(
    "\nThread 0x00007f0000000002",
    "\nCurrent thread 0x1 (most recent call first):\n  <no Python frame>\n\nThread 0x2",
    1,
)


def ended_with_stacks(code: str, tmp_path: Path, *, is_stopped: bool = False) -> list[str]:
    """Return the functions that the program hung in, one for each process."""
    output = tmp_path / "output"
    workspace = Workspace(
        tmp_path, environ={}, console=Console(os.open(output, os.O_WRONLY | os.O_CREAT))
    )
    program = Program([*PYTHON, code], workspace, env={}, cwd=tmp_path)
    eventually(lambda: output.read_text() == "up\n")
    time.sleep(0.2)
    if is_stopped:
        os.kill(program.pid, signal.SIGSTOP)
    processes = program.processes()
    assert process_uses(processes).keys() == set(processes)
    print_stacks(processes, lambda pid: is_catcher(pid, signal.SIGABRT))
    assert program.wait().signal == signal.SIGABRT
    dumps = output.read_text().split("Fatal Python error: Aborted")[1:]
    stacks = [innermost_frames(f"Fatal Python error: Aborted{dump}", "")[0] for dump in dumps]
    return [frame.rpartition(" in ")[2] for frame in stacks]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_process_prints_its_stacks_also_while_it_is_stopped(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    assert ended_with_stacks(CHILD, tmp_path, is_stopped=is_stopped) == ["load"]


def test_children_print_their_stacks_before_a_parent_that_notices_their_end(tmp_path: Path) -> None:
    functions = ended_with_stacks(PARENT, tmp_path)
    assert (functions[0], len(functions)) == ("load", 2)


@pytest.mark.parametrize(
    ("printed", "kills_after", "expected"),
    [
        pytest.param("", 1, OUT_OF_MEMORY, id="one process more"),
        pytest.param("", 0, None, id="none"),
        pytest.param("None['key']", 1, "TypeError", id="the program printed an error"),
    ],
)
def test_program_hangs_after_its_own_error_or_after_a_kill_for_lack_of_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    printed: str,
    kills_after: int,
    expected: dict[str, str] | str | None,
) -> None:
    kills = {"/proc/vmstat": 3}
    monkeypatch.setattr(program_module, "read_oom_kill_counts", lambda: dict(kills))
    (tmp_path / "train.py").write_text(f"def load():\n    {printed or 'pass'}\nload()\n")
    console = Console(os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT))
    workspace = Workspace(tmp_path, environ={}, console=console)
    program = Program([sys.executable, "train.py"], workspace, env={}, cwd=tmp_path)
    program.wait()
    kills["/proc/vmstat"] += kills_after
    error = program.error_before_stacks()
    assert (error["type"] if error and printed else error) == expected


@pytest.mark.parametrize(
    "output", [ABORTED, C_THREAD], ids=["main thread", "signal in a thread of C"]
)
def test_frames_are_those_of_the_main_thread(output: str) -> None:
    expected = ("distributed/distributed_c10d.py:3252 in all_reduce", "trainer/task.py:7 in step")
    assert innermost_frames(find_stacks(output), "") == expected


@pytest.mark.parametrize(
    "output", ["", "done", "Fatal Python error: Aborted\n\nThread 0x1 (most", "Fatal Python error"]
)
def test_output_without_whole_stacks_has_no_frames(output: str) -> None:
    assert innermost_frames(find_stacks(output), "") == ("", "")


def test_error_before_the_stacks_of_an_abort_is_still_the_programs_error() -> None:
    raised = (
        'Traceback (most recent call last):\n  File "/srv/trainer/task.py", line 3, in'
        " f\nValueError: bad\n"
    )
    error = parse_traceback(raised + "terminate called\n" + ABORTED * 40)
    assert error is not None
    assert (error["type"], error["frame"]) == ("ValueError", "trainer/task.py:3 in f")


def test_own_line_after_the_end_of_the_main_program_is_that_of_the_thread_that_remains() -> None:
    stacks = """Fatal Python error: Aborted

Thread 0x00007fc76791c6c0 (most recent call first):
  File "/home/run/train.py", line 5 in serve
  File "/usr/lib/python3.12/threading.py", line 982 in run

Current thread 0x00007fc76845ab80 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 1590 in _shutdown
"""
    frame, own = innermost_frames(stacks, "")
    assert frame.endswith("threading.py:1590 in _shutdown")
    assert own.endswith("train.py:5 in serve")


MODULES = "numpy.core._multiarray_umath, pandas._libs.lib"


@pytest.mark.parametrize("label", ["", "[rank0]: "])
def test_lists_of_modules_are_left_out(label: str) -> None:
    first, last = f"{label}  File 'a.py', line 3 in f\n", f"{label}the end"
    listed = f"{label}Extension modules: {MODULES} (total: 2)\n"
    assert without_modules(f"{first}{listed}{last}") == first + last
    own = f"{label}Extension modules: {MODULES}\n"
    assert without_modules(own) == own, "a line of the program"


def test_lists_of_modules_are_found_in_linear_time() -> None:
    line = "Extension modules: " * 20_000
    began = time.process_time()
    assert without_modules(line) == line
    assert time.process_time() - began < 1
