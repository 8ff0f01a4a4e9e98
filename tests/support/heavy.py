"""The marker `heavy`, of tests that only `make test-all` runs.

    @pytest.mark.heavy(fact="a gang grows again", quick="`unit/flows/test_elastic.py`")

`fact` is what the test shows, and `quick` what shows a quicker version of it in `make test`.
Between backticks, `quick` names modules and folders of tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
TEXTS: Final = frozenset({"fact", "quick"})
_PATH: Final = re.compile(r"`([\w/]+(?:\.py)?)`")


def problems_of(nodes: Iterable[pytest.Item | pytest.Collector]) -> list[str]:
    """Return a line for each marker that lacks a text, or names a test that does not exist."""
    return [
        f"{node.nodeid}: the marker heavy {problem}"
        for node in nodes
        for marker in node.iter_markers("heavy")
        if (problem := _problem_of(marker))
    ]


def _problem_of(marker: pytest.Mark) -> str:
    if marker.args or marker.kwargs.keys() != TEXTS:
        return f"needs {' and '.join(sorted(TEXTS))}, and nothing else"
    for name, text in sorted(marker.kwargs.items()):
        if not isinstance(text, str) or not text.strip():
            return f"has no text for {name}"
    paths: list[str] = _PATH.findall(marker.kwargs["quick"])
    unknown = [path for path in paths if not (TESTS / path).exists()]
    return f"names {unknown[0]}, which is not in tests/" if unknown else ""
