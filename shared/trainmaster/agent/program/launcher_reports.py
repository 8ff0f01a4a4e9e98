"""What launchers print about the end of a worker, which the table of `launchers.py` describes.

A launcher, such as torchrun, starts a program once per process: its *workers*. If a worker fails,
the launcher ends the others and then fails itself, with an error that only reports the worker's.
"""

from __future__ import annotations

import re
from signal import Signals
from typing import Any, NamedTuple

from trainmaster.agent.program.launchers import LAUNCHERS, gather
from trainmaster.agent.program.printed_shapes import TRACEBACK
from trainmaster.agent.program.traceback_reader import REPEATED, Traceback, TracebackReader

_LAUNCHER_TYPES = frozenset(gather(lambda launcher: launcher.error_types))
_LAUNCHER_FUNCTIONS = tuple(
    launcher.failing_function for launcher in LAUNCHERS if launcher.failing_function
)
_COMMANDS = "|".join(["python[0-9.]*", *gather(lambda launcher: launcher.commands)])
_WORKER_FAILED = re.compile(
    "|".join(
        [
            # subprocess, which accelerate, deepspeed and modules of users call: the command runs
            # Python or a launcher.
            rf"Command .*\b(?:{_COMMANDS})\b",
            *gather(lambda launcher: launcher.failures),
        ]
    )
)
"""The beginning of messages of CalledProcessError and RuntimeError that only say that a worker
failed.
"""
_LAUNCHES = re.compile(
    "|".join(
        rf"\b{re.escape(word)}"
        for word in [
            *gather(lambda launcher: launcher.commands),
            *gather(lambda launcher: launcher.modules),
        ]
    )
)
"""A launcher in the words of a command."""
_FIRST_FAILURE = "Root Cause"
"""torchrun's report names the worker that failed first after these words, at its end."""
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?\brank +: (\d+)", re.DOTALL)
"""The report of torchrun: the rank that failed first."""
_REPORT_END = "\n==="
"""The line below the report of torchrun."""
_BEFORE_SIGNAL = [
    r"died with <Signals\.",  # subprocess
    *gather(lambda launcher: launcher.child_signals),
]
_CHILD_SIGNAL = re.compile(rf"(?:{'|'.join(_BEFORE_SIGNAL)})SIG(?!TERM|INT)\w+.*")
"""A worker was ended by a signal. Launchers themselves end the other workers with SIGTERM."""
# Lines of launchers about a worker's death; group `signal`, if any, is the signal's number
_DEATHS = [re.compile(death) for death in gather(lambda launcher: launcher.deaths)]


class LauncherReport(NamedTuple):
    """The error of a launcher that reports the failure of a worker."""

    start: int
    """Number of the first line of its traceback. The workers have printed the lines before it."""
    error: dict[str, Any]
    """The launcher's own error, as `Traceback.error`."""
    signal: str
    """The words about the signal that ended the worker; empty if the launcher names none."""
    root_prefix: str
    """Prefix of the lines of the rank that failed first; empty if the launcher names none."""
    repeated_error: dict[str, Any] | None
    """The worker's error, if the report repeats its traceback."""

    @property
    def is_of_own_command(self) -> bool:
        """Whether the program's own code has run a command that is no launcher. What that command
        printed may have been captured, so the error about it may be all there is.
        """
        is_called_by_program = ".py:" in self.error["own_frame"]
        return is_called_by_program and not _LAUNCHES.search(self.error["message"])


def read_report(traceback: Traceback, lines: list[str], package: str) -> LauncherReport:
    """Return what the launcher says whose error is `traceback`, in these lines of the output.

    `package`: as in `is_own`.
    """
    text = "\n".join(lines[traceback.start : traceback.end])
    signal = _CHILD_SIGNAL.search(text.rpartition(_FIRST_FAILURE)[2])
    root_cause = _ROOT_CAUSE.search(text)
    return LauncherReport(
        start=traceback.start,
        error=traceback.error,
        signal=signal.group() if signal else "",
        root_prefix=f"[rank{root_cause.group(1)}]: " if root_cause else "",
        repeated_error=_read_repeated_error(text, package),
    )


def only_reports_worker(error: dict[str, Any]) -> bool:
    """Return whether the error only says that a worker failed, whose own error says why."""
    name = error["type"].rpartition(".")[2]
    if name in ("CalledProcessError", "RuntimeError"):
        is_raised_by_launcher = error["frame"].endswith(_LAUNCHER_FUNCTIONS)
        return is_raised_by_launcher or bool(_WORKER_FAILED.match(error["message"]))
    return name in _LAUNCHER_TYPES


def describe_death(line: str) -> str | None:
    """Return what a launcher's line says about a worker's death; None if it says nothing.

    Some launchers print such a line, and raise no error of Python.
    """
    for pattern in _DEATHS:
        death = pattern.search(line)
        if death is not None:
            number = death.groupdict().get("signal")
            return f"a process was ended by {Signals(int(number)).name}" if number else death[0]
    return None


def _read_repeated_error(text: str, package: str) -> dict[str, Any] | None:
    """Return the worker's error in the report of torchrun; None if it has none.

    The report has the traceback of a function with `@record`, indented by two spaces. The worker's
    own one is missing where its output goes to a file.
    """
    report = text.rpartition(_FIRST_FAILURE)[2].partition(REPEATED)[2]
    lines = report.partition(_REPORT_END)[0].replace("\n  ", "\n").split("\n")
    if lines[0] != TRACEBACK:
        return None
    traceback = TracebackReader(lines, package).read(0, len(lines))
    return traceback.error if traceback else None
