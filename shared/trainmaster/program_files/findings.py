"""A finding about a program's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ProgramFinding:
    """Something in the files that fails on the VM, or may fail there."""

    problem: str
    remedy: str
    must_fail: bool
    """Whether the program fails on every VM. False: it may run, for example because a package
    brings what is missing.
    """

    def __str__(self) -> str:
        return f"{self.problem}: {self.remedy}"


class LeftOut(NamedTuple):
    """A file or folder of the user that the VM does not get."""

    why: str
    remedy: str
    """What to do so that the VM gets it."""


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The files that a VM gets, by their path from the working directory, with `/`."""

    names: frozenset[str]
    read: Callable[[str], bytes]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    """By the path that it would have."""


def must_fail(problem: str, remedy: str) -> ProgramFinding:
    """Return the finding of a program that cannot run on any VM."""
    return ProgramFinding(problem, remedy, must_fail=True)


def may_fail(problem: str, remedy: str) -> ProgramFinding:
    """Return the finding of a program that may run nevertheless."""
    return ProgramFinding(problem, remedy, must_fail=False)
