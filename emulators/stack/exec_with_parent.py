"""Become another program that dies with its parent: `python -I -S launch.py SIGNAL PARENT_PID PROGRAM ARG…`.

Run as a script, standard library only, because it stands in front of every process of the stack. A signal asked for
with PR_SET_PDEATHSIG survives exec, so the program need not know. It reaches the direct child only; what that child
starts is the guard's business.
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
    """`argv` wrapped so that it gets this signal when the calling process ends, however it ends."""
    script = str(Path(__file__).resolve())
    return [sys.executable, "-I", "-S", script, str(int(on_parent_death)), str(os.getpid()), *argv]


def main() -> None:
    on_parent_death, parent_pid, *argv = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(on_parent_death), 0, 0, 0)
    if os.getppid() != int(parent_pid):
        sys.exit(0)  # the parent was gone before the signal was asked for
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - an argv list of ours, no shell
    except OSError as error:
        sys.exit(f"cannot start {argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
