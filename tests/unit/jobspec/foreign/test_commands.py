"""Lines of the scripts of other tools."""

from __future__ import annotations

import time

import pytest

from trainmaster.jobspec.foreign.commands import join_lines

CPU_S_MAX = 1.0


@pytest.mark.parametrize("text", [" \t", "\u2028", "\\\n", " \\", " \\\n x"])
def test_long_scripts_are_joined_in_a_moment(text: str) -> None:
    begin = time.process_time()
    join_lines(text * 100_000)
    assert time.process_time() - begin < CPU_S_MAX


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a \\\n  b", ["a b"]),
        ("a\\\nb\nc", ["a b", "c"]),
        ("a \\\n  \\\n b", ["a  b"]),
        ("\\\n a\n# x\n\n", ["a"]),
    ],
)
def test_continued_lines_are_one(text: str, lines: list[str]) -> None:
    assert join_lines(text) == lines
