"""Exit policies: what a user may change about the rules.

A policy moves exits between the rules 8, 9 and 10.

    preset   default   the rule table as documented
             service   as AI Platform Training (the old service) documented it: every exit of 1 to
                       127 is permanent
             restart   nothing is permanent: every failure restarts the replica while its budgets
                       last
    rules    by exit code and task type, before the preset; the first match decides

    pauses   whether quick failures are followed by a pause

    window   how long a charged restart counts; by default for the whole attempt

The rules 1 to 6 come before any policy: an exit that is not the program's fault is never charged.
No policy concerns a stall, whose exit code the agent chose.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from trainmaster.core.model.replica_id import TaskType

PERMANENT_STATUSES: Final = (2, 126, 127)
"""Usage error, cannot execute, command not found: the shell's conventions.

A retry ends in the same way.
"""
CRASH_STATUSES: Final = (128 + 6, 128 + 11)
"""SIGABRT and SIGSEGV as exit codes (128 + signal). Source: the service's rules."""
SIGNAL_BASE: Final = 128
"""Exit code of a process that signal N ended: 128 + N, as a shell reports it."""
SERVICE_STATUS_MAX: Final = 127
"""Highest exit status that the old service treated as permanent."""

_FAILURES_WITHOUT_PAUSE: Final = 1
"""Quick failures in a row after which a program is restarted at once."""
RESTART_PAUSE_MAX_S: Final = 60
"""Longest pause before the restart of a program that keeps failing soon after its start."""


class Preset(StrEnum):
    DEFAULT = "default"
    SERVICE = "service"
    RESTART = "restart"


class ExitAction(StrEnum):
    """The rule that an exit is moved to."""

    FAIL = "fail"  # rule 8
    RERUN = "rerun"  # rule 9
    RESTART = "restart"  # rule 10


@dataclass(frozen=True, slots=True)
class ExitRule:
    """One rule of a user's exit policy."""

    first: int
    """First exit code of the range; a signal N is 128 + N."""
    last: int
    """Last exit code of the range, included."""
    action: ExitAction
    task_types: tuple[TaskType, ...] = ()
    """Roles that the rule applies to; empty: all."""

    def matches(self, code: int, task_type: TaskType) -> bool:
        return self.first <= code <= self.last and (
            not self.task_types or task_type in self.task_types
        )


@dataclass(frozen=True, slots=True)
class ExitPolicy:
    """The exit policy of a job."""

    preset: Preset = Preset.DEFAULT
    rules: tuple[ExitRule, ...] = ()
    pauses: bool = True
    """Whether a program that keeps failing soon after its start is restarted after a pause."""
    window_s: int | None = None
    """How long a charged restart counts, in seconds; None: for the whole attempt."""

    def counted(self, restarts: tuple[datetime, ...], now: datetime) -> tuple[datetime, ...]:
        """Return the charged restarts that still count."""
        if self.window_s is None:
            return restarts
        return tuple(at for at in restarts if now - at < timedelta(seconds=self.window_s))

    def restart_pause_s(self, quick_failures: int) -> int:
        """Return the pause before the restart that follows `quick_failures` failures in a row: 0,
        1, 2, 4 … seconds.
        """
        pauses = quick_failures - _FAILURES_WITHOUT_PAUSE
        if not self.pauses or pauses < 1:
            return 0
        return min(1 << (pauses - 1), RESTART_PAUSE_MAX_S)

    def user_action(self, code: int | None, task_type: TaskType) -> ExitAction | None:
        """Return the action of the first user rule that matches; None if none does."""
        if code is None:
            return None
        return next((rule.action for rule in self.rules if rule.matches(code, task_type)), None)

    def preset_action(self, code: int | None) -> ExitAction | None:
        """Return the action that the preset assigns to the code; None if the rest of the rule table
        decides.
        """
        if code in CRASH_STATUSES:
            return ExitAction.RERUN
        match self.preset:
            case Preset.SERVICE:
                is_permanent = code is not None and 1 <= code <= SERVICE_STATUS_MAX
                return ExitAction.FAIL if is_permanent else None
            case Preset.RESTART:
                return ExitAction.RESTART
            case Preset.DEFAULT:
                return ExitAction.FAIL if code in PERMANENT_STATUSES else None


def code_of(exit_status: int | None, signal: int | None) -> int | None:
    """Return the exit code: 128 + N for signal N, else the exit status."""
    return SIGNAL_BASE + signal if signal is not None else exit_status
