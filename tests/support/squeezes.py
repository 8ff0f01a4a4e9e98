"""Count code that is denser than a reader can take in at once: several ideas in one statement.

`python -m tests.support.squeezes` prints the count of each kind in the product, its limit, and the
count in the tests; it ends with status 1 if a count of the product is above its limit. With the
name of a kind, it prints the places. `make check` runs it. Lower a limit when its count falls.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DISPLAYS: Final = (ast.Tuple, ast.List, ast.Set)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PYTHON_WIDTH: Final = 100
PAGE_WIDTH: Final = 120
MANY: Final = 8
"""Parameters of a function, or positional arguments of a call, that are too many to tell apart."""
COMMENTS_FOR_CHECKERS: Final = re.compile(r"  # (?:noqa|type: ignore)\b.*")
LIMITS: Final = {
    "pack": 0,  # *("a", "b"), so that the formatter leaves several items in a line
    "tuple": 40,  # a, b = f(x), g(y)
    "fields": 0,  # self.a, self.b, self.c = a, b, {}
    "walrus": 120,  # name := value
    "walrus-chain": 0,  # … and (a := f()) and (b := g(a)), or a walrus that filters
    "loop-of-one": 0,  # for name in (value,)
    "loop-if-else": 4,  # for x in xs if c else ()
    "three-way": 2,  # a if x else b if y else c
    "sum-of-truths": 1,  # number + is_held
    "nested": 90,  # a comprehension in a comprehension, or with two loops
    "arguments": 4,  # a call with eight positional arguments
    "parameters": 20,  # a function with eight parameters; commands have many
    "one-letter": 20,  # names; what remains are coordinates
    "vague": 0,  # for one in …
    "width": 0,  # Python beyond 100 columns, comments for checkers aside
    "page-width": 0,  # HTML, CSS and JavaScript beyond 120
}


def kinds_of(node: ast.AST) -> Iterator[str]:
    """Yield the kinds of squeezes that a node of a syntax tree is."""
    if isinstance(node, ast.For | ast.comprehension):
        yield from _kinds_of_loop(node)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        yield from _kinds_of_assignment(node, node.value)
    yield from _kinds_of_expression(node)
    yield from _kinds_of_names(node)


def squeezes_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the kind and the line of each squeeze in a file."""
    text = path.read_text(encoding="utf-8")
    is_python = path.suffix == ".py"
    for number, line in enumerate(text.splitlines(), 1):
        if is_python and len(COMMENTS_FOR_CHECKERS.sub("", line)) > PYTHON_WIDTH:
            yield "width", number
        if not is_python and len(line) > PAGE_WIDTH:
            yield "page-width", number
    if not is_python:
        return
    for node in ast.walk(ast.parse(text)):
        at = node.iter if isinstance(node, ast.comprehension) else node
        for kind in kinds_of(node):
            yield kind, getattr(at, "lineno", 0)


def find_places() -> dict[str, list[tuple[Path, int]]]:
    """Return the places of each kind in the files that git tracks, without third parties' code."""
    listed = subprocess.check_output(
        ("git", "ls-files", "*.py", "*.html", "*.css", "*.js"), text=True
    )
    places: dict[str, list[tuple[Path, int]]] = {kind: [] for kind in LIMITS}
    for path in map(Path, listed.split()):
        if "vendor" in path.parts or path.is_symlink() or not path.exists():
            continue
        for kind, line in squeezes_of(path):
            places[kind].append((path, line))
    return places


def main(arguments: list[str]) -> int:
    """Print the number of each kind, or the places of the kind that is named.

    Return 1 if the product is above a limit.
    """
    places = find_places()
    if arguments:
        for path, line in places[arguments[0]]:
            print(f"{path}:{line}")
        return 0
    is_over = False
    for kind, limit in LIMITS.items():
        in_tests = sum(path.parts[0] == "tests" for path, _ in places[kind])
        in_product = len(places[kind]) - in_tests
        is_over |= in_product > limit
        mark = "  <- above its limit" if in_product > limit else ""
        print(f"{kind:14}{in_product:6} limit {limit:4}   tests {in_tests:5}{mark}")
    return int(is_over)


def _kinds_of_expression(node: ast.AST) -> Iterator[str]:
    is_display = isinstance(node, ast.Starred) and isinstance(node.value, DISPLAYS)
    is_truth_in_sum = isinstance(node, ast.BinOp) and (
        _is_truth(node.left) or _is_truth(node.right)
    )
    is_comprehension = isinstance(node, COMPREHENSIONS)
    found = {
        "pack": is_display,
        "walrus": isinstance(node, ast.NamedExpr),
        "walrus-chain": isinstance(node, ast.BoolOp) and _count(node, ast.NamedExpr) > 1,
        "three-way": isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.IfExp),
        "sum-of-truths": is_truth_in_sum,
        "nested": is_comprehension and _count(node, *COMPREHENSIONS, ast.comprehension) > 2,
    }
    yield from (kind for kind, is_one in found.items() if is_one)


def _kinds_of_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and len(node.args) >= MANY:
        yield "arguments"
    if isinstance(node, ast.FunctionDef) and _count(node.args, ast.arg) >= MANY:
        yield "parameters"
    if _is_one_letter_name(node):
        yield "one-letter"


def _kinds_of_loop(loop: ast.For | ast.comprehension) -> Iterator[str]:
    if len(getattr(loop.iter, "elts", ())) == 1:
        yield "loop-of-one"
    if isinstance(loop.iter, ast.IfExp):
        yield "loop-if-else"
    if getattr(loop.target, "id", "") in {"one", "each"}:
        yield "vague"
    if any(_count(condition, ast.NamedExpr) for condition in getattr(loop, "ifs", ())):
        yield "walrus-chain"


def _kinds_of_assignment(assignment: ast.Assign, value: ast.Tuple) -> Iterator[str]:
    targets = getattr(assignment.targets[0], "elts", ())
    is_computed = any(not isinstance(item, ast.Name | ast.Constant) for item in value.elts)
    if targets and is_computed:
        yield "tuple"
    if sum(isinstance(target, ast.Attribute) for target in targets) > 2:
        yield "fields"


def _is_truth(node: ast.expr) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return isinstance(node, ast.Compare) or name.startswith(("is_", "has_"))


def _is_one_letter_name(node: ast.AST) -> bool:
    is_new = isinstance(node, ast.arg) or isinstance(getattr(node, "ctx", None), ast.Store)
    name = getattr(node, "arg", getattr(node, "id", ""))
    return is_new and re.fullmatch("[a-z]", name) is not None


def _count(node: ast.AST, *types: type[ast.AST]) -> int:
    return sum(isinstance(inner, types) for inner in ast.walk(node))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
