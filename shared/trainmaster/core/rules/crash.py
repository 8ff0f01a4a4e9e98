"""Crashes: a signal that the program's own machine code raised, and where the program was then.

Python's faulthandler, which the agent turns on in every program, prints the stacks of all threads
before the process ends. The thread that crashed comes after "Current thread":

    Fatal Python error: Segmentation fault

    Thread 0x00007fb7961ff6c0 (most recent call first):
      File "/usr/lib/python3.12/threading.py", line 355 in wait

    Current thread 0x00007fb7969bab80 (most recent call first):
      File "/usr/lib/python3.12/ctypes/__init__.py", line 519 in string_at
      File "/home/trainmaster/run/train.py", line 4 in <module>

Newer versions of Python add the thread's name, `Current thread 0x00007fb7 [python] (most recent
call first)`; faulthandler without the option for all threads begins with `Stack (most recent call
first)`. If a thread without Python crashed, none is current, and where the program was is not
known.
"""

from __future__ import annotations

import re
import signal
from typing import Final

from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.model.exit_policy import SIGNAL_BASE, code_of

CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
)
"""Signals that end a process for what it did itself, after which faulthandler prints stacks."""

_FATAL: Final = "Fatal Python error: "
# The line before the stack of the thread that crashed, and the frames of a stack
_CURRENT_THREAD: Final = re.compile(
    r"^(?:Current thread 0x\w+(?: \[[^\]\n]*\])?|Stack) \(most recent call first\):\n", re.MULTILINE
)
_FRAME: Final = re.compile(
    r'^  File "(?P<path>[^"]{1,400})", line (?P<line>\d{1,9}) in (?P<function>\S{1,100})',
    re.MULTILINE,
)
_LIBRARY_PATH: Final = re.compile(r"/lib/python3|/site-packages/|/dist-packages/|^<")
"""In the path of a file that is Python's or a package's, or of code without a file (`<string>`)."""
_NAMED_SIGNAL: Final = re.compile(r"\bSIG(?:SEGV|BUS|FPE|ILL|ABRT)\b")
"""In the error of a launcher: `Signal 11 (SIGSEGV) received by PID 4711`."""


def crash_signal(event: ReplicaExited) -> signal.Signals | None:
    """Return the signal with which the program, or a process that it launched, crashed; None: it
    ended otherwise, also by the SIGABRT with which the agent ends a program that hangs.
    """
    if event.cause is not ExitCause.PROCESS:
        return None
    number = (code_of(event.exit_status, event.signal) or 0) - SIGNAL_BASE
    if number in CRASHES:
        return signal.Signals(number)
    named = _NAMED_SIGNAL.search(event.error.message) if event.error else None
    return signal.Signals[named[0]] if named else None


def crash_place(event: ReplicaExited) -> str:
    """Return ` in string_at (run/train.py:4)`: where the program was when it crashed; empty if
    its output does not say so.

    The function is the innermost one, and the line the innermost one outside Python's libraries.
    """
    stacks = event.tail.partition(_FATAL)[2]
    current = _CURRENT_THREAD.search(stacks)
    if current is None:
        return ""
    frames = list(_FRAME.finditer(stacks[current.end() :].partition("\n\n")[0]))
    if not frames:
        return ""
    innermost = frames[0]
    own = next((frame for frame in frames if not _LIBRARY_PATH.search(frame["path"])), innermost)
    folder_and_file = "/".join(own["path"].split("/")[-2:])
    return f" in {innermost['function']} ({folder_and_file}:{own['line']})"
