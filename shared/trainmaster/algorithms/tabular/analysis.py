"""Determine the type and the treatment of each column.

    every whole number is different    row identifier
    at most 10 different whole numbers categories
    other numbers                      numerical
    every text is different            row identifier
    texts                              categories: a vocabulary, or hashing if there are too many
    one value, or none                 constant

Users who want whole numbers to be something else write 101.0 for a number, or code_101 for a
category.

Source: AI Platform Training's pages; they do not define how many values are few, so these limits
are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd

from ..errors import DataError
from ..tabular.metadata import TARGET, Column, ColumnType, Metadata, Statistics, Target, Treatment
from ..tabular.read_csv import to_numbers

INTEGER_CATEGORIES_MAX: Final = 10
"""Most different whole numbers that are categories."""
CLASSES_MIN: Final = 2
"""There is nothing to learn from one class."""
CLASSES_MAX: Final = 1_000
"""A target with more different values is most likely a number."""
_INTEGER: Final = r"[+-]?[0-9]+"
"""Matches a cell with a whole number."""


@dataclass(frozen=True, slots=True)
class CategoryLimits:
    """Limits of the categories of one column that have a number of their own."""

    vocabulary_max: int
    """Largest number of categories of a vocabulary; a column with more is hashed."""
    buckets: int
    """Buckets of a hashed column."""


ONE_HOT: Final = CategoryLimits(vocabulary_max=64, buckets=64)
"""For tables that are stored with one column per category."""
EMBEDDED: Final = CategoryLimits(vocabulary_max=1_000, buckets=1_000)
"""For models that look categories up."""


def analyse(table: pd.DataFrame, limits: CategoryLimits, *, is_classification: bool) -> Metadata:
    """Return what the columns of the training data are.

    Raises DataError if the target or all features are unusable.
    """
    cells = table[TARGET]
    target = _analyse_classes(cells) if is_classification else _analyse_number(cells)
    columns = tuple(
        analyse_column(index, table[index], limits) for index in range(1, table.shape[1])
    )
    metadata = Metadata(target, columns)
    if not metadata.features:
        raise DataError(
            "no column can be learnt from: each has one value only, or a different value in"
            " every row"
        )
    return metadata


def analyse_column(index: int, column: pd.Series, limits: CategoryLimits) -> Column:
    """Return what one column is.

    `index`: its position in the file. `column`: its cells as texts, NaN for missing ones.
    """
    values = column.dropna()
    distinct = int(values.nunique())
    numbers = to_numbers(values)
    if distinct <= 1:
        is_number = bool(distinct) and bool(numbers.notna().all())
        kind = ColumnType.NUMERICAL if is_number else ColumnType.CATEGORICAL
        return Column(index, kind, Treatment.CONSTANT, _statistics(column, distinct))
    is_unique = distinct == len(values)
    if numbers.isna().any():
        return _text_column(index, column, values, limits, is_unique=is_unique)
    if values.str.fullmatch(_INTEGER).all():
        if is_unique:
            return Column(
                index, ColumnType.NUMERICAL, Treatment.ROW_IDENTIFIER, _statistics(column, distinct)
            )
        if distinct <= INTEGER_CATEGORIES_MAX:
            categories = tuple(sorted(values.unique(), key=int))
            return Column(
                index,
                ColumnType.CATEGORICAL,
                Treatment.IDENTITY,
                _statistics(column, distinct),
                categories,
            )
    statistics = _statistics(column, distinct, numbers)
    return Column(index, ColumnType.NUMERICAL, Treatment.NONE, statistics)


def _text_column(
    index: int, column: pd.Series, values: pd.Series, limits: CategoryLimits, *, is_unique: bool
) -> Column:
    """Return what a column with texts is. `values`: its cells that are not missing."""
    kind = ColumnType.CATEGORICAL
    statistics = _statistics(column, int(values.nunique()))
    if is_unique:
        return Column(index, kind, Treatment.ROW_IDENTIFIER, statistics)
    if statistics.distinct > limits.vocabulary_max:
        return Column(index, kind, Treatment.HASHING, statistics, buckets=limits.buckets)
    return Column(index, kind, Treatment.VOCABULARY, statistics, tuple(sorted(values.unique())))


def _statistics(column: pd.Series, distinct: int, numbers: pd.Series | None = None) -> Statistics:
    """Return the statistics of a column; those of its numbers only if `numbers` is given.

    `distinct`: number of its different values.
    """
    count = int(column.notna().sum())
    missing = len(column) - count
    if numbers is None:
        return Statistics(count, missing, distinct)
    return Statistics(
        count,
        missing,
        distinct,
        mean=float(numbers.mean()),
        std=float(numbers.std(ddof=0)),
        minimum=float(numbers.min()),
        maximum=float(numbers.max()),
    )


def _analyse_classes(column: pd.Series) -> Target:
    """Return the target of a classification: the sorted classes."""
    values = column.dropna().unique()
    if not CLASSES_MIN <= len(values) <= CLASSES_MAX:
        raise DataError(
            f"the first column has {len(values)} different values, and a target of classification"
            f" has {CLASSES_MIN} to {CLASSES_MAX}; put the class into the first column, or select a"
            " regression"
        )
    is_number = to_numbers(pd.Series(values)).notna().all()
    return Target(ColumnType.CATEGORICAL, tuple(sorted(values, key=float if is_number else None)))


def _analyse_number(column: pd.Series) -> Target:
    """Return the target of a regression: the mean and deviation of its numbers.

    A deviation of 0 becomes 1, because numbers are divided by it.
    """
    values = column.dropna()
    numbers = to_numbers(values)
    if values.empty or numbers.isna().any():
        wrong = "empty" if values.empty else repr(values[numbers.isna()].iloc[0])
        raise DataError(
            f"the first column has the value {wrong}, and a target of regression is a number"
        )
    return Target(
        ColumnType.NUMERICAL,
        classes=(),
        mean=float(numbers.mean()),
        std=float(numbers.std(ddof=0)) or 1.0,
    )
