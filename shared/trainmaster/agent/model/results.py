"""How the agent's work ended: a program's exit, a trial's measurement, a failed setup.

A trial is one run of hyperparameter tuning. The primary is the replica whose exit 0 ends the job.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEP_MAX = 2**53
"""The largest integer that all JSON parsers keep: Pub/Sub would reject a message with a larger one.
"""
STDERR_LINE_CHARS = 256
"""Length of the last line of a program's standard error that its exit event carries."""
TAIL_CHARS = 4096
"""Length of the last output of a program that its exit event carries."""


@dataclass(frozen=True)
class Point:
    """A value of the metric that a trial reported before its last one."""

    value: float
    step: int


@dataclass(frozen=True)
class Measurement:
    """A value of the metric that a trial reported."""

    value: float
    """Value of the metric; finite."""
    step: int
    """Training step at which it was measured; 0 if unknown."""
    earlier: Sequence[Point] = ()
    """Values that the program reported before it, oldest first; set for the last value that an exit
    carries.
    """


@dataclass(frozen=True)
class NamedValue:
    """The last value of a metric that a program reported or printed."""

    name: str
    value: float


@dataclass(frozen=True)
class LastProgress:
    """How far a program was when it ended, by its own account. What is unknown is None or empty."""

    share: float | None = None
    """Part of the work that was done, from 0 to 1."""
    step: int | None = None
    steps: int | None = None
    """Number of steps in all."""
    epoch: int | None = None
    """The last epoch that it named, counted from 1."""
    epochs: int | None = None
    """Number of epochs in all."""
    metrics: Sequence[NamedValue] = ()
    """Its last metrics that are finite."""
    not_finite: Sequence[str] = ()
    """Names of the metrics whose last value is NaN or infinite."""


@dataclass(frozen=True)
class ProgramExit:
    """How an incarnation, one execution of the program, ended, or why its program never started.

    The fields are those of the event `replica-exit`. If the cause is ``process``, exactly one of
    `exit_status` and `signal` is set.
    """

    exit_status: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    """The kernel or the container engine killed it for lack of memory."""
    error: Mapping[str, Any] | None = None
    """Type, message, frames and causes of the Python error, if there was one."""
    tail: str = ""
    """The last `TAIL_CHARS` characters of its output."""
    cause: str = "process"
    """Cause of a `replica-exit`, as listed in docs/interfaces.md section 2."""
    measurement: Measurement | None = None
    """Set for trials of a tuning job that reported their metric."""
    ran_s: float | None = None
    """How long the program ran, in seconds; None if no program was started or the agent does not
    know.
    """
    stderr_line: str = ""
    """The last words on its standard error (`program_errors.last_words`), if it failed; of a
    container, of the engine's command.
    """
    progress: LastProgress | None = None
    """Set for the primary, if its program reported or printed how far it was."""
    left_nothing: bool = False
    """Whether the primary's program exited 0 with nothing below the job's `jobDir`."""

    @property
    def how(self) -> str:
        """The exit status or the signal, in words."""
        return f"exit status {self.exit_status}" if self.signal is None else f"signal {self.signal}"

    def describe_failure(self, command: Sequence[str]) -> str:
        """Return the failure in the words of Python's `subprocess`, which AI Platform Training
        used.
        """
        returncode = self.exit_status or 0
        if self.signal is not None:
            returncode = -self.signal
        return str(subprocess.CalledProcessError(returncode, list(command)))


@dataclass(frozen=True)
class SetupFailure:
    """Why a program could not be started.

    The fields are those of the event `replica-exit` (docs/interfaces.md section 2).
    """

    cause: str
    """``install`` if another try would fail too; ``setup`` if it may succeed."""
    exit_status: int | None
    """Exit status of pip or of the container engine, if one of them failed."""
    error: Mapping[str, str]
    tail: str
    """The end of the output of pip or of the engine; the end of the message if there is none."""
