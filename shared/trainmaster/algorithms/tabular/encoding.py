"""Numbers for XGBoost: numbers as they are, one column per category or bucket.

The same as `instance_generator.encode_row`, for a whole table at once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from ..tabular.instance_generator import bucket_of
from ..tabular.metadata import Column, ColumnType, Metadata, Treatment

UNKNOWN: Final = -1
"""Position of a missing category, and of one that the training data did not have."""


def encode(table: pd.DataFrame, metadata: Metadata) -> np.ndarray[Any, Any]:
    """Return a matrix of float32, one row per row of a prepared table."""
    matrix = np.zeros(
        (len(table), sum(column.width for column in metadata.features)), dtype=np.float32
    )
    start = 0
    for column in metadata.features:
        if column.type is ColumnType.NUMERICAL:
            matrix[:, start] = table[column.index].to_numpy()
        else:
            positions = category_positions(table[column.index], column)
            rows = np.flatnonzero(positions != UNKNOWN)
            matrix[rows, start + positions[rows]] = 1.0
        start += column.width
    return matrix


def category_positions(cells: pd.Series, column: Column) -> np.ndarray[Any, Any]:
    """Return the position of each cell's category; UNKNOWN for a missing or new category."""
    codes, found = pd.factorize(cells)
    if column.treatment is Treatment.HASHING:
        known = [bucket_of(category, column.buckets) if category else UNKNOWN for category in found]
    else:
        order = {category: position for position, category in enumerate(column.categories)}
        known = [order.get(category, UNKNOWN) for category in found]
    if not known:  # the table has no rows
        return np.zeros(len(cells), dtype=np.int64)
    positions: np.ndarray[Any, Any] = np.asarray(known, dtype=np.int64)[codes]
    return positions
