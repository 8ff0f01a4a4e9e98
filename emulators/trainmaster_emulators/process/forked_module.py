"""Run a Python module in a fork of this process: it need not start an interpreter, nor import what is imported here."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

from trainmaster_emulators.process import exec_with_parent

POLL_S: Final = 0.02
STDIN, STDOUT, STDERR = range(3)


class ForkedModule:
    """The process of `python -m MODULE ARG…`, with the methods of `subprocess.Popen` that a running service uses.

    The module has a function `main`, which returns the exit status.
    """

    def __init__(self, argv: list[str], environment: Mapping[str, str], output: int, kept: int) -> None:
        """`output`: descriptor for what the module prints. `kept`: the other descriptor that the module inherits."""
        parent = os.getpid()
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _run(argv, environment, output, kept, parent)

    def poll(self) -> int | None:
        if self._status is None and (ended := os.waitpid(self.pid, os.WNOHANG)) != (0, 0):
            self._status = os.waitstatus_to_exitcode(ended[1])
        return self._status

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_S)
        return status


def _run(argv: list[str], environment: Mapping[str, str], output: int, kept: int, parent: int) -> NoReturn:
    status = 1
    try:
        exec_with_parent.end_with_parent(signal.SIGKILL, parent)
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), STDIN)
        os.dup2(output, STDOUT)
        os.dup2(output, STDERR)
        for descriptor in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {STDIN, STDOUT, STDERR, kept}:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed
                os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv[2:]
        status = importlib.import_module(argv[2]).main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - what the interpreter would do at the end of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
