"""A row of failures: the failures of a program in a row, since it last made progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

SHOWN_FROM: Final = 2
"""Failures in a row from which users see the row. One failure is only a restart."""


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Failures in a row, of a replica that is judged alone or of a whole round.

    A failure continues the row if it came soon after the start of the program, or if it is the
    same as the last one. Whatever else ends an incarnation ends the row: a lost VM, a reboot.
    """

    failures: int
    """Number of failures, with the last one."""
    last: str
    """The last failure in one line: `FileNotFoundError: ... (train.py:18)`."""
    signature: str
    """What the next failure must have in common with the last one to be the same."""
    since: datetime
    """When the first failure was decided about."""
    at: datetime
    """When the last failure was decided about."""
    longest_s: float = 0.0
    """Longest time that the program ran before one of these failures, in seconds."""
    next_step: str = ""
    """What the last decision did: `restart 2 of 5 after a pause of 1 s`."""
    failures_left: int | None = None
    """After how many more failures the job is FAILED, at most; None: unknown."""

    @property
    def is_shown(self) -> bool:
        """Whether users see the row."""
        return self.failures >= SHOWN_FROM
