"""The kind of each column: the rules for whole numbers, numbers and texts."""

from __future__ import annotations

import pandas as pd
import pytest

from trainmaster.algorithms.errors import DataError
from trainmaster.algorithms.tabular.analysis import ONE_HOT, CategoryLimits, analyse, analyse_column
from trainmaster.algorithms.tabular.metadata import Column, ColumnType, Treatment


def column_of(*cells: str | None, limits: CategoryLimits = ONE_HOT) -> Column:
    """Return what a column with these cells is; None is an empty one."""
    return analyse_column(1, pd.Series(cells, dtype=str), limits)


def test_different_whole_numbers_are_row_identifiers() -> None:
    assert column_of(*map(str, range(100, 130))).treatment is Treatment.ROW_IDENTIFIER


def test_few_whole_numbers_are_categories_in_numerical_order() -> None:
    column = column_of(*["10", "2", "1", "2", "1"] * 3)

    assert (column.treatment, column.categories) == (Treatment.IDENTITY, ("1", "2", "10"))


def test_many_whole_numbers_with_repetitions_are_numbers() -> None:
    column = column_of(*map(str, range(11)), "3")

    assert (column.type, column.treatment) == (ColumnType.NUMERICAL, Treatment.NONE)
    assert column.statistics.mean == pytest.approx((sum(range(11)) + 3) / 12)


@pytest.mark.parametrize(
    "cells", [("101.0", "102.0", "103.0"), ("1.0", "2.0", "1.0"), ("1e3", "2", "7")]
)
def test_numbers_with_a_point_are_numbers_however_few(cells: tuple[str, ...]) -> None:
    assert column_of(*cells).treatment is Treatment.NONE


def test_numbers_with_a_prefix_are_categories() -> None:
    column = column_of("code_101", "code_102", "code_101")

    assert (column.treatment, column.categories) == (Treatment.VOCABULARY, ("code_101", "code_102"))


def test_more_texts_than_the_vocabulary_holds_are_hashed() -> None:
    column = column_of("a", "b", "c", "a", limits=CategoryLimits(vocabulary_max=2, buckets=5))

    assert (column.treatment, column.buckets, column.width) == (Treatment.HASHING, 5, 5)


def test_different_texts_are_row_identifiers() -> None:
    assert column_of("a", "b", "c").treatment is Treatment.ROW_IDENTIFIER


@pytest.mark.parametrize("cells", [("7", "7"), ("x", None, "x"), (None, None)])
def test_column_with_one_value_is_constant(cells: tuple[str | None, ...]) -> None:
    assert column_of(*cells).treatment is Treatment.CONSTANT


def test_infinite_number_makes_a_column_of_texts() -> None:
    assert column_of("1.5", "inf", "1.5").type is ColumnType.CATEGORICAL


def test_classes_are_sorted_as_numbers_if_they_are_numbers() -> None:
    table = pd.DataFrame({0: ["10", "9", "10"], 1: ["1.5", "2.5", "3.5"]}, dtype=str)

    assert analyse(table, ONE_HOT, is_classification=True).target.classes == ("9", "10")


@pytest.mark.parametrize(
    ("cells", "is_classification", "expected"),
    [
        (("a", "a", "a"), True, "has 1 different values"),
        (("1", "two", "3"), False, "has the value 'two', and a target of regression is a number"),
    ],
)
def test_unusable_target_is_refused(
    cells: tuple[str, ...], expected: str, *, is_classification: bool
) -> None:
    table = pd.DataFrame({0: cells, 1: ["1.5", "2.5", "3.5"]}, dtype=str)

    with pytest.raises(DataError, match=expected):
        analyse(table, ONE_HOT, is_classification=is_classification)


def test_data_without_a_feature_are_refused() -> None:
    table = pd.DataFrame({0: ["a", "b", "a"], 1: ["1", "2", "3"]}, dtype=str)

    with pytest.raises(DataError, match="no column can be learnt from"):
        analyse(table, ONE_HOT, is_classification=True)
