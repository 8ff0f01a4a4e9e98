"""Errors that a program printed last, although it exited 0.

Each program really runs, with the Python of the tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.agent.program.tracebacks import find_unreported_error

FAILING = 'def load():\n    open("no/train.csv")\n'
PLACE = "run/train.py:2 in load"
THREAD = "import threading\nthread = threading.Thread(target=load)\nthread.start()\nthread.join()\n"
PROCESS = """import multiprocessing
if __name__ == "__main__":
    process = multiprocessing.Process(target=load)
    process.start()
    process.join()
"""
TASK = """import asyncio
async def save():
    load()
async def main():
    task = asyncio.create_task(save())
    await asyncio.sleep(0.01)
asyncio.run(main())
"""
PRINTED = "import traceback\ntry:\n    load()\nexcept OSError:\n    traceback.print_exc()\n"
LOGGED = "import logging\ntry:\n    load()\nexcept OSError:\n    logging.exception('no rows')\n"
DELETED = "class Writer:\n    def __del__(self):\n        load()\nwriter = Writer()\ndel writer\n"
TRACKER = "print('wandb: Synced run', file=__import__('sys').stderr)\n"


def stderr_of(program: str, folder: Path, *command: str) -> str:
    """Run the program, and return what it printed on standard error. It must exit 0."""
    file = folder / "run" / "train.py"
    file.parent.mkdir()
    file.write_text(FAILING + program)
    argv = list(command) or [sys.executable, str(file)]
    done = subprocess.run(argv, cwd=file.parent, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize(
    "program",
    [
        THREAD,
        PROCESS,
        TASK,
        "import atexit\natexit.register(load)\n",
        PRINTED,
        LOGGED,
        PRINTED + TRACKER,
        THREAD + "print('Epoch 8/8')\n",
    ],
    ids=["thread", "process", "task", "atexit", "printed", "logged", "tracker", "stdout"],
)
def test_error_of_a_program_that_exits_0_is_found(program: str, tmp_path: Path) -> None:
    error = find_unreported_error(stderr_of(program, tmp_path))
    assert error is not None
    assert (error["type"], error["own_frame"]) == ("FileNotFoundError", PLACE)


@pytest.mark.parametrize("command", ["{python} train.py | cat", "{python} train.py; echo end"])
def test_error_that_a_shell_hides_is_found(command: str, tmp_path: Path) -> None:
    shell = ("sh", "-c", command.format(python=sys.executable))
    error = find_unreported_error(stderr_of("load()\n", tmp_path, *shell))
    assert error is not None
    assert error["type"] == "FileNotFoundError"


@pytest.mark.parametrize(
    "program",
    [
        "print('done')\n",
        DELETED,
        PRINTED + "print('WARNING: no cache', file=__import__('sys').stderr)\n",
        PRINTED + "print('Epoch 8/8 loss 0.1', file=__import__('sys').stderr)\n",
        PRINTED + "import logging\n"
        "logging.basicConfig(level='INFO')\nlogging.info('used the other file')\n",
    ],
    ids=["none", "__del__", "warned", "went on", "logged on"],
)
def test_error_that_a_program_survives_is_no_end(program: str, tmp_path: Path) -> None:
    assert find_unreported_error(stderr_of(program, tmp_path)) is None


def test_error_without_a_line_of_the_program_is_no_end(tmp_path: Path) -> None:
    """Python's own helpers print such errors at the end of healthy programs."""
    library = 'import threading, json\nthreading.Thread(target=json.loads, args=("",)).start()\n'
    assert find_unreported_error(stderr_of(library, tmp_path)) is None
