"""The stacks of a program that hangs: where each of its threads was when the agent ended it.

Python's faulthandler prints them, which the agent turns on in every program. SIGABRT makes it print
the stacks of all threads, whether the process sleeps, computes, or waits in C, and ends it. Source:
https://docs.python.org/3/library/faulthandler.html
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Sequence

from trainmaster.agent.program.process_table import is_running
from trainmaster.agent.program.traceback_reader import format_frame, is_own

VARIABLE = "PYTHONFAULTHANDLER"
STACK_S = 0.5
"""Longest time for the stacks of one process. Measured: 0.3 s on two busy cores."""
STACKS_S = 10.0
"""Longest time for the stacks of all processes of the program."""
_MODULES = "Extension modules: "
"""Begins the line after the stacks of a crash that lists the modules in machine code: of pandas and
scipy alone, it is longer than the tail of an output, and it shows no cause.
"""
_MODULES_END = "(total: "
_BEGIN = "Fatal Python error: Aborted"
_THREAD = re.compile(r"^(Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^[ \t]+File "([^"]+)", line (\d+) in (.+)$', re.MULTILINE)


def print_stacks(
    processes: Sequence[int], has_stacks: Callable[[int], bool], in_s: float = 0.0
) -> int:
    """End the processes that print their stacks, one after the other; return how many there were.

    `processes` begins with the topmost one. All are stopped first, so that none reacts to the end
    of another, and children are ended before their parents. `has_stacks`: whether a process prints
    its stacks. `in_s`: time until the first end, in which the agents of other members stop their
    programs.
    """
    for pid in processes:
        _send(pid, signal.SIGSTOP)
    time.sleep(in_s)
    end = time.monotonic() + STACKS_S
    count = 0
    for pid in reversed(processes):
        if not has_stacks(pid) or time.monotonic() >= end:
            continue
        with contextlib.suppress(OSError, ValueError):
            # A core file may be as large as the memory.
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _send(pid, signal.SIGABRT)
        _send(pid, signal.SIGCONT)
        count += 1
        last = time.monotonic() + STACK_S
        while is_running(pid) and time.monotonic() < last:
            time.sleep(0.01)
    for pid in processes:
        _send(pid, signal.SIGCONT)
    return count


def find_stacks(output: str) -> str:
    """Return the part of the output that begins with the first stacks; empty if there are none."""
    start = output.find(_BEGIN)
    return output[start:] if start >= 0 else ""


def without_modules(output: str) -> str:
    """Return the output without the lists of modules that faulthandler prints after its stacks."""
    lines = output.splitlines(keepends=True)
    return "".join(line for line in lines if _MODULES_END not in line.partition(_MODULES)[2])


def innermost_frames(stacks: str, package: str) -> tuple[str, str]:
    """Return the innermost frame of the last process, and the innermost one of the program's own.

    Both are `file:line in function`, and empty if there is none. `package`: as in
    `parse_traceback`. The frames of the current thread, which got the signal, come first: it is
    nearly always the main thread. If it has no frame of the program, as after the end of the main
    program, the innermost one of another thread counts. faulthandler prints the main thread last.
    """
    # What is before the first thread, then for each thread its kind and its frames.
    _, *parts = _THREAD.split(stacks.rpartition(_BEGIN)[2])
    latest_first = list(zip(parts[::2], parts[1::2]))[::-1]
    current_first = sorted(latest_first, key=lambda thread: thread[0] == "Thread")
    frames: list[re.Match[str]] = []
    for _, text in current_first:
        frames += _FRAME.finditer(text)
    if not frames:
        return "", ""
    own = next((frame for frame in frames if is_own(frame.group(1), package)), None)
    return format_frame(frames[0]), format_frame(own) if own else ""


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
