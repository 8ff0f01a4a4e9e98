"""Read CSV files: UTF-8, no header, the target in the first column, blank cells are
missing values.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pandas as pd

from ..errors import DataError
from ..files import read_file


def read_csv(paths: Sequence[str]) -> pd.DataFrame:
    """Return the rows of all files as texts; missing cells are NaN. Columns are numbered from 0,
    the target.

    Raises DataError for a file that is missing, empty, not a table, or has another number of
    columns than the first.
    """
    tables = [_read_one(path) for path in paths]
    widths = {path: table.shape[1] for path, table in zip(paths, tables, strict=True)}
    for path, width in widths.items():
        check_width(path, width, next(iter(widths.values())), next(iter(widths)))
    table = tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)
    _refuse_header(table, paths[0])
    return table


def check_width(path: str, width: int, expected: int, other: str) -> None:
    """Raise DataError if a file has another number of columns than the other one."""
    if width != expected:
        raise DataError(
            f"{path} has {width} columns, and {other} has {expected}; all files need the same"
            " columns"
        )


def _read_one(path: str) -> pd.DataFrame:
    """Return the table of one file, all cells as texts.

    Raises DataError for a file that is missing, empty or no table of at least two columns.
    """
    content = read_file(path)
    if content is None:
        raise DataError(f"{path} does not exist; upload the data first, or correct the path")
    try:
        table = pd.read_csv(
            io.BytesIO(content),
            header=None,
            dtype=str,
            keep_default_na=False,
            na_values=[""],
            skipinitialspace=True,
        )
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty; it must have at least one row") from None
    except pd.errors.ParserError as error:
        raise DataError(
            f"{path} is not a CSV file with the same columns in all rows: {error}".strip()
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; store it as UTF-8") from None
    if table.shape[1] < 2:  # noqa: PLR2004 - the target and one feature
        raise DataError(
            f"{path} has one column; it needs the target and at least one feature, separated by"
            " commas"
        )
    return table


def to_numbers(column: pd.Series) -> pd.Series:
    """Return the numbers that a column of texts stands for; NaN for anything else, and for infinite
    numbers.
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    return numbers.where(numbers.abs() != float("inf"))


def _refuse_header(table: pd.DataFrame, path: str) -> None:
    """Raise DataError if the first row has names: texts in at least one column whose other values
    are numbers.
    """
    if len(table) < 3:  # noqa: PLR2004 - with fewer rows, nothing can be concluded
        return
    for index in range(table.shape[1]):
        rest = table[index].iloc[1:].dropna()
        first = table[index].iloc[:1].dropna()
        if first.empty or rest.empty or not to_numbers(first).isna().all():
            continue
        if to_numbers(rest).notna().all():
            text = first.iloc[0]
            raise DataError(
                f"{path} has a header: column {index + 1} is {text!r} and numbers below; delete"
                " that line"
            )
