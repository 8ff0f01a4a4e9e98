"""What the user may change about the rules: an exit policy moves exits between the rows of the rule table.

    preset   default   the rule table as it stands
             service   as the old service documented: every exit of 1 to 127 is permanent at once
             restart   nothing is permanent: every failure restarts the replica while its budgets last
    rules    by exit code and task type, before the preset; the first that matches decides

Rows 1 to 7 come before any policy: who is not at fault is never punished.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.core.model.replica_id import TaskType

PERMANENT_STATUSES: Final = (2, 126, 127)
"""Usage error, cannot execute, not found: the shell's own conventions; another try gives the same."""
CRASH_STATUSES: Final = (128 + 6, 128 + 11)
"""SIGABRT and SIGSEGV as containers report them; packages report the signals. Source: the service's rules."""
SIGNAL_BASE: Final = 128
SERVICE_STATUS_MAX: Final = 127


class Blame(StrEnum):
    """Of whom an exit tells, by its evidence alone."""

    OWN = "own"  # a traceback of this program, or a signal
    PEER = "peer"  # a traceback that tells of a lost peer
    UNKNOWN = "unknown"


class Preset(StrEnum):
    DEFAULT = "default"
    SERVICE = "service"
    RESTART = "restart"


class ExitAction(StrEnum):
    """Which row an exit goes to: 8, 9 or 10."""

    FAIL = "fail"
    RERUN = "rerun"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class ExitRule:
    """`first` to `last`: exit codes, both included; a signal N is 128 + N. No task types: all of them."""

    first: int
    last: int
    action: ExitAction
    task_types: tuple[TaskType, ...] = ()

    def matches(self, code: int, task_type: TaskType) -> bool:
        return self.first <= code <= self.last and (not self.task_types or task_type in self.task_types)


@dataclass(frozen=True, slots=True)
class ExitPolicy:
    preset: Preset = Preset.DEFAULT
    rules: tuple[ExitRule, ...] = ()

    def chosen(self, code: int | None, task_type: TaskType) -> ExitAction | None:
        """What the user's own rules say; None where none matches."""
        if code is None:
            return None
        return next((rule.action for rule in self.rules if rule.matches(code, task_type)), None)

    def preset_action(self, code: int | None) -> ExitAction | None:
        """What the preset says of the code alone; None where the rest of the table decides."""
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
    """One number for both: 128 + N for signal N, as a shell reports it."""
    return SIGNAL_BASE + signal if signal is not None else exit_status
