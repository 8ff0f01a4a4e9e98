"""docs/security.md names tests and modules that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "security.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| attack |", "| --- "))
]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_there_are_many_attacks_each_said_once() -> None:
    assert len(ROWS) >= 15
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_each_has_a_defence_that_is_there_and_a_test_that_is_there(row: list[str]) -> None:
    _, defence, tests = row
    modules = [each for each in quoted(defence) if "/" in each and "." in each and "…" not in each and ".." not in each]
    assert modules, "no module"
    assert not [each for each in modules if not (ROOT / each).is_file()]
    named = quoted(tests)
    assert named, "no test"
    for each in named:
        path, _, function = each.partition("::")
        assert function.startswith("test_")
        assert function in functions(ROOT / path), each
