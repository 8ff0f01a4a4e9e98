"""A table that is one item: every row runs, and a failure names each wrong row."""

from __future__ import annotations

import inspect

import pytest

from tests.support.each_row import each_row


def test_failure_names_each_wrong_row_and_the_others_run_too() -> None:
    ran = []

    @each_row(
        "given, expected", [(1, 1), (2, 3), (4, 4), (5, 6)], ids=["one", "two", "four", "five"]
    )
    def check(given: int, expected: int) -> None:
        ran.append(given)
        assert given == expected

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as caught:
        check()
    assert ran == [1, 2, 4, 5]
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["in the row two"],
        ["in the row five"],
    ]


def test_missing_error_in_a_row_is_a_failure() -> None:
    @each_row("text", ["1", "x"])
    def check(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check()


def test_tables_multiply_and_fixtures_stay_arguments() -> None:
    ran = []

    @each_row("a", [1, 2])
    @each_row("b", ["x", "y"])
    def check(a: int, b: str, world: str) -> None:
        ran.append((a, b, world))

    assert list(inspect.signature(check).parameters) == ["world"]
    check(world="w")
    assert ran == [(1, "x", "w"), (1, "y", "w"), (2, "x", "w"), (2, "y", "w")]


def test_empty_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="the table is empty"):
        each_row("a", [])
