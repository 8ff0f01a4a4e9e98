"""Tables of pages are tables in every dialect: all rows have the cells of the header."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from tests.unit.docs.test_paths import BLOCK, PAGES, ROOT, text_of

RULE = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")
"""The second line of a table."""
SEPARATOR = re.compile(r"(?<!\\)\|")
"""A bar between cells, also within code: Markdown divides a row before it looks for code."""


def is_row(line: str) -> bool:
    return line.lstrip().startswith("|")


def ragged_rows(text: str) -> list[str]:
    """Return the rows of all tables that have more or fewer cells than the line below the
    header.
    """
    lines = BLOCK.sub("", text).splitlines()
    ragged = []
    for at, line in enumerate(lines):
        if RULE.fullmatch(line):
            rows = [lines[at - 1], *takewhile(is_row, lines[at + 1 :])]
            bars = len(SEPARATOR.findall(line))
            ragged += [row for row in rows if len(SEPARATOR.findall(row)) != bars]
    return ragged


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_rows_of_tables_have_the_cells_of_their_header(page: Path) -> None:
    assert ragged_rows(text_of(page)) == []


def test_row_with_a_cell_too_many_is_found() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n| `x | y` | 2 |\n"
    assert ragged_rows(table) == ["| `x | y` | 2 |"]
