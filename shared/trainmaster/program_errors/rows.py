"""A row of the tables of errors: which errors mean what, and where their words come from.

When a program has failed, the rules look up its last error in the tables, to decide whether another
start may help.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Pattern


class Meaning(str, Enum):
    """What an error shows about its cause, and whether another start may repair it."""

    BUG = "bug"
    """The program's code. It raises the same error at each start."""
    SETTING = "setting"
    """A file, a name, a permission or a machine that the job lacks, until somebody changes it."""
    OUT_OF_MEMORY = "out of memory"
    """The program needs more memory than its machine or its device has."""
    LOST_PEER = "lost peer"
    """Another member of the job has gone: the cause is there."""
    SILENT_PEER = "silent peer"
    """Another member of the job does not answer: the cause is there."""
    TRANSIENT = "transient"
    """A service, a network or a device that may work at the next start."""
    UNKNOWN = "unknown"
    """No row matches: the program's own failure, until a repetition proves a bug."""


class Row(NamedTuple):
    """One row of the table."""

    meaning: Meaning
    runtime: str
    """The library, service or device that the error is from, in words."""
    source: str
    """Where the words are from."""
    pattern: Pattern[str] | None = None
    """Part of the message, or, in the table `NAMES`, of the type; None: the types alone decide."""
    types: tuple[str, ...] = ()
    """Types, without their modules, to which the pattern is restricted; empty: any type."""
    is_of_accelerator: bool = False
    """Whether the row holds only on a machine with GPUs or TPUs."""
    is_of_peers: bool = False
    """Whether the row holds only in a job of several machines."""

    def matches(self, name: str, message: str) -> bool:
        """Whether a message of an exception of this type matches the pattern."""
        if self.types and name not in self.types:
            return False
        return self.pattern is not None and self.pattern.search(message) is not None
