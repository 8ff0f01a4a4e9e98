"""The assumptions of the documentation about Google Cloud. The table is in assumptions.yaml.

The smoke test notes facts on Google Cloud, and its report compares them with these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml


@dataclass(frozen=True, slots=True)
class Assumption:
    """One fact about Google Cloud."""

    key: str
    """Name of the fact in `World.facts`."""
    text: str
    sources: tuple[str, ...]
    """Files that document it, relative to the repository."""
    expected: str
    """The assumed value, `at most N s`, or `either`: the code handles all values, and the table
    shows which is real.
    """
    read_from: str
    """How the smoke test sees it. For a fact that it does not read, the reason."""
    local: str = ""
    """Why the local stack cannot show it. Empty: it can."""

    def holds(self, seen: str) -> bool:
        """Return whether a seen value is as expected."""
        limit = re.fullmatch(r"at most (\d+) s", self.expected)
        if limit:
            return seen.isdigit() and int(seen) <= int(limit[1])
        return self.expected in ("either", seen)


def _read() -> tuple[Assumption, ...]:
    """Return the rows of the table. Raises TypeError if one has an unknown field, or lacks one."""
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return tuple(
        Assumption(key, **{**row, "sources": tuple(row["sources"])}) for key, row in rows.items()
    )


ASSUMPTIONS: Final = _read()
