"""attacks.yaml, which docs/security.md shows: the modules and tests that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.support.pages.attacks import ATTACKS

ROOT = Path(__file__).parents[3]
MODULE = re.compile(r"(shared|functions|infra|cli|emulators)/[\w/.-]+")


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of the functions of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_attacks_name_existing_modules_and_tests() -> None:
    assert ATTACKS
    for row in ATTACKS:
        quoted = re.findall(r"`([^`]+)`", row.defence)
        modules = [text for text in quoted if MODULE.fullmatch(text)]
        assert modules, f"{row.attack}: no module"
        assert [path for path in modules if not (ROOT / path).exists()] == [], row.attack
        assert row.tests, f"{row.attack}: no test"
        for test in row.tests:
            path, _, function = test.partition("::")
            assert function.startswith("test_"), test
            assert function in functions(ROOT / path), test
