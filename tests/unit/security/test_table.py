"""docs/security.md: the modules and tests in its table exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "security.md"
MODULE = re.compile(r"(shared|functions|infra|cli|emulators)/[\w/.-]+")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8")
    .partition("| attack |")[2]
    .partition("\n\n")[0]
    .splitlines()[2:]
]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_rows_name_existing_modules_and_tests() -> None:
    assert ROWS
    for attack, defence, tests in ROWS:
        modules = [text for text in quoted(defence) if MODULE.fullmatch(text)]
        assert modules, f"{attack}: no module"
        assert [path for path in modules if not (ROOT / path).exists()] == [], attack
        assert quoted(tests), f"{attack}: no test"
        for test in quoted(tests):
            path, _, function = test.partition("::")
            assert function.startswith("test_"), test
            assert function in functions(ROOT / path), test
