"""The process above the supervisor: when either end goes away, nothing of the stack stays.

    trainmaster local up ──stdin pipe──► guard ──► supervisor ──► Firestore, Pub/Sub, functions, VMs, …
                                         (subreaper)

- The pipe closes (the parent ended, however it ended): the supervisor is asked to stop, then everything is killed.
- The supervisor ends, however it ends: everything it left is killed. As a child subreaper the guard is the parent of
  every orphan below it, also of those that made themselves a session or a process group of their own, as VMs do.
  Containers are the engine's children; they are found by the stack's id, which is a label of theirs.
- The guard itself is killed: the supervisor is told by the kernel (PR_SET_PDEATHSIG) and stops in order.

Run as `python -m emulators.stack.parent_watchdog [--lifeline] PROGRAM ARG…`; its exit status is the supervisor's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from types import FrameType
from typing import Final

import psutil

from emulators.stack import exec_with_parent, processes

PR_SET_CHILD_SUBREAPER: Final = 36  # Source: <linux/prctl.h>
POLL_S: Final = 0.1
STOP_S: Final = 15.0  # the supervisor's own patience with its services is shorter


def main(argv: list[str]) -> int:
    lifeline = argv[0] == "--lifeline"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked: list[int] = []

    def ask(signal_number: int, _frame: FrameType | None) -> None:
        asked.append(signal_number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    command = exec_with_parent.command(argv[1:] if lifeline else argv, on_parent_death=signal.SIGTERM)
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input])
    status = _watch(child, asked, lifeline=lifeline)
    _kill_descendants()
    if stack_id := os.environ.get(processes.STACK_ID):
        processes.kill_stack(stack_id)
    return status


def _watch(child: int, asked: list[int], *, lifeline: bool) -> int:
    """Wait for the child's end, ask for it when it is time, force it when it does not come. Its exit status."""
    give_up_at: float | None = None
    while (status := _reap(child)) is None:
        if lifeline and give_up_at is None and _closed(sys.stdin.fileno()):
            asked.append(signal.SIGTERM)
        elif not lifeline or give_up_at is not None:
            time.sleep(POLL_S)
        if asked and give_up_at is None:
            give_up_at = time.monotonic() + STOP_S
            _signal(child, signal.SIGTERM)
        if give_up_at is not None and time.monotonic() > give_up_at:
            _signal(child, signal.SIGKILL)
    return status


def _closed(lifeline: int) -> bool:
    """Whether the parent's end of the pipe is gone; waits a poll interval for that."""
    readable, _, _ = select.select([lifeline], [], [], POLL_S)
    return bool(readable) and not os.read(lifeline, 1)


def _reap(child: int) -> int | None:
    """Collect every ended process below; the child's exit status (128 + signal, as a shell has it) if it is there."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                found = code if code >= 0 else 128 - code
    return found


def _kill_descendants() -> None:
    """Until none is left: a process may start another while it is being looked for."""
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _reap(0)
        time.sleep(0.02)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
