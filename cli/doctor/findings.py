"""What `trainmaster doctor` found: each thing that is wrong with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

APPLY: Final = "`terraform apply` in infra/ makes it"


class Status(StrEnum):
    OK = "ok"
    FIX = "FIX"
    UNSEEN = "-"


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is empty unless something is wrong."""

    status: Status
    what: str
    fix: str = ""


def fix(what: str, fix: str) -> Finding:
    return Finding(Status.FIX, what, fix)
