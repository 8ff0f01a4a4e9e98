"""A finding about a program's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The files that a VM gets, by their path from the working directory, with `/`."""

    names: frozenset[str]
    read: Callable[[str], bytes]


def must_fail(problem: str, remedy: str) -> ProgramFinding:
    """Return the finding of a program that cannot run on any VM."""
    return ProgramFinding(problem, remedy, must_fail=True)


def may_fail(problem: str, remedy: str) -> ProgramFinding:
    """Return the finding of a program that may run nevertheless."""
    return ProgramFinding(problem, remedy, must_fail=False)
