"""Replace this process by a program that the kernel signals when its parent ends.

    python -I -S exec_with_parent.py SIGNAL PARENT_PID PROGRAM ARG…

The script starts every process of the stack, so it uses the standard library only and starts
quickly. The setting PR_SET_PDEATHSIG survives exec, so the program needs no change. It covers the
direct child only; `parent_watchdog` covers the descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # Source: <linux/prctl.h>


def command(argv: list[str], on_parent_death: signal.Signals = signal.SIGKILL) -> list[str]:
    """Wrap `argv` so that the program gets this signal when the calling process ends for any
    reason.
    """
    script = str(Path(__file__).resolve())
    return [sys.executable, "-I", "-S", script, str(int(on_parent_death)), str(os.getpid()), *argv]


def end_with_parent(on_parent_death: int, parent_pid: int) -> None:
    """Make the kernel send this process the signal when its parent ends.

    Exit if the parent has ended before.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, on_parent_death, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(0)


def main() -> None:
    on_parent_death, parent_pid, *argv = sys.argv[1:]
    end_with_parent(int(on_parent_death), int(parent_pid))
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the stack's own command line, no shell
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
