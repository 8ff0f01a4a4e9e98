"""Print which facts only heavy tests show completely, and what shows a quicker version of each.

    .venv/bin/python -m tests.support.heavy_table

prints a table in Markdown, from the markers of all tests (tests/support/heavy.py).
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from contextlib import redirect_stdout

import pytest


class _Collected:
    """A pytest plugin that keeps the tests that were collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def table(items: list[pytest.Item]) -> str:
    """Return a row for each fact: the fact, its quick tests, and the count of heavy ones."""
    modules: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for item in items:
        marker = item.get_closest_marker("heavy")
        if marker is not None:
            module = item.nodeid.partition("::")[0].removeprefix("tests/")
            modules[marker.kwargs["fact"], marker.kwargs["quick"]][module] += 1
    lines = ["| fact | in `make test` | heavy |", "| --- | --- | --- |"]
    for (fact, quick), counts in modules.items():
        heavy = ", ".join(f"`{module}` ({count})" for module, count in counts.items())
        lines.append(f"| {fact} | {quick} | {heavy} |")
    return "\n".join(lines)


def main() -> int:
    collected = _Collected()
    with redirect_stdout(sys.stderr):
        status = pytest.main(["--collect-only", "-qq", "-m", "heavy"], plugins=[collected])
    if status == pytest.ExitCode.OK:
        print(table(collected.items))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
