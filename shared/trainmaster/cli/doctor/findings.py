"""Findings of `trainmaster doctor`: what was checked, and what to do if it is wrong."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CREATE_IT: Final = "run `terraform apply` in infra/, which creates it"
REPAIR_IT: Final = "run `terraform apply` in infra/, which repairs it"


class Status(StrEnum):
    """The result of a check, as its line begins."""

    OK = "ok"
    FIX = "FIX"
    LIMIT = "!"
    UNKNOWN = "?"
    NOT_CHECKED = "-"

    @property
    def exit_status(self) -> int:
        """The exit status of a command whose worst finding has this status."""
        return {Status.FIX: 1, Status.UNKNOWN: 3}.get(self, 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    status: Status
    what: str
    """The subject of the check; for FIX and LIMIT the problem; for UNKNOWN and NOT_CHECKED also the
    reason.
    """
    fix: str = ""
    """The remedy; empty unless the status is FIX, LIMIT or UNKNOWN."""

    def __str__(self) -> str:
        if not self.fix:
            return f"{self.status:<4} {self.what}"
        line = f"{self.status:<4} {self.what.removesuffix('.')}"
        separator = " " if line.endswith("?") else ": "
        return f"{line}{separator}{self.fix}"


def ok(what: str) -> Finding:
    """Report that nothing is wrong."""
    return Finding(Status.OK, what)


def problem(what: str, fix: str) -> Finding:
    """Report what must be repaired. It changes the exit status."""
    return Finding(Status.FIX, what, fix)


def limit(what: str, fix: str) -> Finding:
    """Report a restriction of some jobs or clients.

    It may be intended, and does not change the exit status.
    """
    return Finding(Status.LIMIT, what, fix)


def permissions(needed: Iterable[str], granted: Container[str], what: str, fix: str) -> Finding:
    """Report the permissions that are missing, or `what`: all that the user has."""
    missing = [permission for permission in needed if permission not in granted]
    return problem(f"you lack the permissions {', '.join(missing)}", fix) if missing else ok(what)


def unknown(what: str, reason: str, fix: str) -> Finding:
    """Report something that was to be checked, and that Google does not show to this user."""
    return Finding(Status.UNKNOWN, f"{what}: could not be checked, because {reason}", fix)


def not_checked(what: str, reason: str) -> Finding:
    """Report something that does not apply here."""
    return Finding(Status.NOT_CHECKED, f"{what}: not checked, because {reason}")
