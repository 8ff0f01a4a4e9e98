"""Encode rows for a model that was trained with `--preprocess`: standard library only.

    python instance_generator.py metadata.json rows.csv > instances.csv

A row has the columns of the training data without the target. metadata.json is stored beside this
file.
"""

from __future__ import annotations

import csv
import json
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def encode_row(row: Sequence[str], metadata: Mapping[str, Any]) -> list[float]:
    """Return the numbers that stand for a row: one per number, and one per category.

    An empty cell is missing.

    Raises ValueError if the row has another number of columns, or a text in a column of numbers.
    """
    columns = metadata["columns"]
    if len(row) != len(columns):
        raise ValueError(
            f"the row has {len(row)} columns, and the training data had {len(columns)} without the"
            " target"
        )
    encoded: list[float] = []
    for column in columns:
        encoded += _encode_cell(row[column["index"] - 1].strip(" "), column)
    return encoded


def _encode_cell(cell: str, column: Mapping[str, Any]) -> list[float]:
    """Return the numbers of one cell: none for a column that is not a feature, one for a number,
    else one per category or bucket.

    `column`: its object in metadata.json. Its treatment says what its cells are; the names are
    explained in AI Platform Training's page on preprocessing.
    """
    treatment = column["treatment"]
    if treatment in ("constant", "row_identifier"):
        return []
    if treatment == "none":
        return [float(cell) if cell else float(column["statistics"]["mean"])]
    one_hot = [0.0] * (column["buckets"] or len(column["categories"]))
    if treatment == "hashing":
        if cell:
            one_hot[bucket_of(cell, column["buckets"])] = 1.0
    elif cell in column["categories"]:
        one_hot[column["categories"].index(cell)] = 1.0
    return one_hot


def bucket_of(category: str, buckets: int) -> int:
    """Return the bucket of a category: its CRC-32 modulo the number of buckets."""
    return zlib.crc32(category.encode()) % buckets


def main(arguments: Sequence[str]) -> int:
    """Write the encoded rows of a CSV file to standard output. `arguments`: this program,
    metadata.json, the CSV file.
    """
    metadata = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    with Path(arguments[2]).open(encoding="utf-8", newline="") as file:
        writer = csv.writer(sys.stdout)
        for row in csv.reader(file):
            writer.writerow(encode_row(row, metadata))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
