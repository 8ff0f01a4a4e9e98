"""The parent process of the supervisor. It ensures that no process of the stack outlives the stack.

    trainmaster local up ──stdin pipe──► parent_watchdog ──► supervisor ──► Firestore, Pub/Sub, …
                                         (subreaper)

- The pipe closes because the command ended for any reason: the watchdog terminates the supervisor,
  then kills the rest.
- The supervisor ends for any reason: the watchdog kills what is left. It is a child subreaper, so
  every orphan below it becomes its child, even those that lead their own session or process group,
  as VMs do. Containers are children of the container engine; the watchdog finds them by their
  label, the stack's id.
- The watchdog is killed: the kernel sends the supervisor a signal (PR_SET_PDEATHSIG), and it stops
  in order.

Run as `python -m trainmaster_emulators.process.parent_watchdog [--lifeline] PROGRAM ARG…`.
The exit status is the supervisor's.
`--lifeline`: stop when standard input closes.
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

from trainmaster_emulators.process import exec_with_parent, processes

PR_SET_CHILD_SUBREAPER: Final = 36  # Source: <linux/prctl.h>
POLL_S: Final = 0.1
KILL_PAUSE_S: Final = 0.02
STOP_S: Final = 15.0  # longer than the supervisor waits for its services


def main(argv: list[str]) -> int:
    lifeline = argv[0] == "--lifeline"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stop_signals: list[int] = []

    def record_signal(signal_number: int, _frame: FrameType | None) -> None:
        stop_signals.append(signal_number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, record_signal)
    command = exec_with_parent.command(
        argv[1:] if lifeline else argv, on_parent_death=signal.SIGTERM
    )
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input])
    status = _watch(child, stop_signals, lifeline=lifeline)
    _kill_descendants()
    stack_id = os.environ.get(processes.STACK_ID)
    if stack_id:
        processes.kill_stack(stack_id)
    return status


def _watch(child: int, stop_signals: list[int], *, lifeline: bool) -> int:
    """Wait until the child has ended and return its exit status.

    Terminate the child after a stop signal or when the lifeline closes; kill it if it does not end
    within STOP_S.
    """
    give_up_at: float | None = None
    while (status := _reap(child)) is None:
        if lifeline and give_up_at is None and _wait_closed(sys.stdin.fileno()):
            stop_signals.append(signal.SIGTERM)
        elif not lifeline or give_up_at is not None:
            time.sleep(POLL_S)
        if stop_signals and give_up_at is None:
            give_up_at = time.monotonic() + STOP_S
            _signal(child, signal.SIGTERM)
        if give_up_at is not None and time.monotonic() > give_up_at:
            _signal(child, signal.SIGKILL)
    return status


def _wait_closed(lifeline: int) -> bool:
    """Wait at most one poll interval and return whether the parent's end of the pipe is closed."""
    readable, _, _ = select.select([lifeline], [], [], POLL_S)
    return bool(readable) and not os.read(lifeline, 1)


def _reap(child: int) -> int | None:
    """Reap every process that has ended.

    Return the child's exit status (128 + signal, as in a shell) if it has.
    """
    exit_status: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:  # no other child has ended
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(wait_status)
                exit_status = code if code >= 0 else 128 - code
    return exit_status


def _kill_descendants() -> None:
    """Kill until none is left: a process may start another one meanwhile."""
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        _reap(0)
        time.sleep(KILL_PAUSE_S)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
