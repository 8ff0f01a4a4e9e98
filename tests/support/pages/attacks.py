"""The table of attacks in docs/security.md, from tests/unit/security/attacks.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack, and why it fails."""

    attack: str
    defence: str
    """In words, with the modules that contain it as code."""
    tests: tuple[str, ...]
    """Tests that carry out the attack: `PATH::FUNCTION`."""


def _read() -> tuple[Attack, ...]:
    """Return the rows of the file. Raises TypeError if one has an unknown field, or lacks one."""
    file = Path(__file__).parents[3] / "tests" / "unit" / "security" / "attacks.yaml"
    rows = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(Attack(**{**row, "tests": tuple(row["tests"])}) for row in rows)


ATTACKS: Final = _read()


def table() -> str:
    """Return one row for each attack."""
    head = "| attack | defence | tests |\n| --- | --- | --- |\n"
    return head + "".join(
        f"| {row.attack} | {row.defence} | {', '.join(f'`{test}`' for test in row.tests)} |\n"
        for row in ATTACKS
    )
