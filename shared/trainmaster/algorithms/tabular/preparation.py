"""Reads files into tables for training, validation and test, and prepares the tables.

With `--preprocess`, in the order of AI Platform Training (the service): split; drop rows with too
many missing values; fill the others. Without it nothing is changed, and missing values are refused
where a model cannot learn from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from ..arguments.argument import Values, number_in
from ..errors import DataError
from ..files import find_files
from ..tabular.analysis import CategoryLimits, analyse
from ..tabular.metadata import TARGET, ColumnType, Metadata
from ..tabular.read_csv import check_width, read_csv, to_numbers

MISSING_SHARE_MAX: Final = 0.1
"""Rows with more missing values are dropped. Source: the service's page on preprocessing."""
SPLIT_SEED: Final = 1
"""A restarted program must get the same tables."""
CLASSES_SHOWN: Final = 10
"""Most known classes in the message about an unknown one."""
PARTS: Final = ("training", "validation", "test")
"""Names of the tables; argument `NAME_data_path` has the file of each."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The data of a run, as the algorithms read them."""

    metadata: Metadata
    tables: dict[str, pd.DataFrame]
    """One for each of PARTS, with one column per column of the files; a table may have no rows."""


def prepare(values: Values, limits: CategoryLimits, *, is_classification: bool) -> Prepared:
    """Read, analyse and prepare the tables that the arguments name. Raises DataError."""
    tables = _split(_read_parts(values), values)
    training = tables["training"]
    metadata = analyse(training, limits, is_classification=is_classification)
    is_preprocessed = bool(values["preprocess"])
    ready = {}
    for name, table in tables.items():
        cleaned = _drop_rows(table, metadata, name) if is_preprocessed else table
        if not is_preprocessed:
            _refuse_missing(cleaned, metadata, name)
        ready[name] = _convert_types(cleaned, metadata, name)
    if ready["training"].empty:
        raise DataError(
            f"no row is left for training: each misses more than {MISSING_SHARE_MAX:.0%} of its"
            " values"
        )
    return Prepared(metadata, ready)


def read_part(path: object) -> pd.DataFrame | None:
    """Return the table of a file or pattern; None for None."""
    return read_csv(find_files(str(path))) if path is not None else None


def _read_parts(values: Values) -> dict[str, pd.DataFrame]:
    """Return the tables that the arguments name; those without a file have no rows."""
    parts = {name: read_part(values[f"{name}_data_path"]) for name in PARTS}
    training = parts["training"]
    if training is None:
        raise DataError("--training_data_path is required")
    for name, table in parts.items():
        if table is not None:
            path = str(values[f"{name}_data_path"])
            training_path = str(values["training_data_path"])
            check_width(path, table.shape[1], training.shape[1], training_path)
    return {name: training.iloc[:0] if table is None else table for name, table in parts.items()}


def _split(tables: dict[str, pd.DataFrame], values: Values) -> dict[str, pd.DataFrame]:
    """Move shares of the training rows to validation and test, if there are no files for these."""
    if not values["preprocess"]:
        return tables
    rows = tables["training"]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(rows))
    split = dict(tables)
    start = 0
    for name in ("validation", "test"):
        if values[f"{name}_data_path"] is None:
            count = int(len(rows) * number_in(values, f"{name}_split"))
            split[name] = rows.iloc[np.sort(order[start : start + count])]
            start += count
    split["training"] = rows.iloc[np.sort(order[start:])]
    return split


def _drop_rows(table: pd.DataFrame, metadata: Metadata, name: str) -> pd.DataFrame:
    """Return the rows that have a target, and enough values. `name`: the table's, for messages."""
    features = [column.index for column in metadata.features]
    is_kept = (table[features].isna().mean(axis=1) <= MISSING_SHARE_MAX) & table[TARGET].notna()
    dropped = len(table) - int(is_kept.sum())
    if dropped:
        print(
            f"{name}: dropped {dropped} of {len(table)} rows with too many missing values",
            flush=True,
        )
    return table[is_kept]


def _refuse_missing(table: pd.DataFrame, metadata: Metadata, name: str) -> None:
    """Raise DataError if a value of the target or of a feature is missing."""
    for index in (TARGET, *(column.index for column in metadata.features)):
        missing = int(table[index].isna().sum())
        if missing:
            problem = (
                f"column {index + 1} of the {name} data misses {missing} of {len(table)} values"
            )
            raise DataError(f"{problem}; --preprocess fills them, or drops the rows")


def _convert_types(table: pd.DataFrame, metadata: Metadata, name: str) -> pd.DataFrame:
    """Return the target and all features: numbers with missing ones filled, categories as texts, ''
    for none.
    """
    columns = {TARGET: _convert_target(table[TARGET], metadata, name)}
    for column in metadata.features:
        cells = table[column.index]
        if column.type is ColumnType.CATEGORICAL:
            columns[column.index] = cells.fillna("").astype(str)
            continue
        numbers = to_numbers(cells)
        wrong = cells[cells.notna() & numbers.isna()]
        if len(wrong):
            problem = (
                f"column {column.index + 1} of the {name} data has the value {wrong.iloc[0]!r}"
            )
            raise DataError(f"{problem}, and is a number in the training data")
        columns[column.index] = numbers.fillna(column.statistics.mean)
    return pd.DataFrame(columns).reset_index(drop=True)


def _convert_target(cells: pd.Series, metadata: Metadata, name: str) -> pd.Series:
    """Return the number of each class, or the number to be learnt."""
    classes = metadata.target.classes
    if classes:
        unknown = cells[~cells.isin(classes)]
        if len(unknown):
            problem = (
                f"the {name} data have the class {unknown.iloc[0]!r}, which the training data do"
                " not have"
            )
            raise DataError(f"{problem} ({', '.join(classes[:CLASSES_SHOWN])})")
        return cells.map({label: number for number, label in enumerate(classes)}).astype("int64")
    numbers = to_numbers(cells)
    if numbers.isna().any():
        wrong = cells[numbers.isna()].iloc[0]
        raise DataError(f"the {name} data have the target {wrong!r}, which is not a number")
    return numbers
