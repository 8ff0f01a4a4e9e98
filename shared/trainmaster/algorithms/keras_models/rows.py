"""Rows of texts as tensors: standardized numbers, and the number of each category.

The same graph encodes the tables for training and the rows that a client sends, so that both agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from ..tabular.metadata import Column, Metadata, Treatment

Inputs = dict[str, Any]
"""`numbers`: float32 [rows, numbers]; `categories`: int64 [rows, categories]."""

NUMBERS = "numbers"
CATEGORIES = "categories"
"""Keys of `Inputs`."""


class RowEncoder(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """Encodes columns of texts. Category 0 is that of missing and new texts."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__()
        self.metadata = metadata
        numbers = [column.statistics for column in metadata.numerical]
        self._means = tf.constant([item.mean or 0.0 for item in numbers], tf.float32)
        self._scales = tf.constant([1.0 / (item.std or 1.0) for item in numbers], tf.float32)
        self._tables = {
            str(column.index): _table(column)
            for column in metadata.categorical
            if column.treatment is not Treatment.HASHING
        }

    @property
    def sizes(self) -> list[int]:
        """Number of categories of each categorical column, with category 0."""
        return [column.width + 1 for column in self.metadata.categorical]

    def decode(self, rows: Any) -> dict[int, Any]:
        """Return the features of CSV rows without the target, as texts: column index → string
        tensor [rows].

        The target is column 0 of a table, so the first cell of such a row has the column index 1.
        """
        width = len(self.metadata.columns)
        cells = tf.io.decode_csv(rows, [[""]] * width)
        stripped = [tf.strings.strip(cell) for cell in cells]
        return {column.index: stripped[column.index - 1] for column in self.metadata.features}

    def encode(self, texts: dict[int, Any]) -> Inputs:
        """Return the inputs of the models. `texts`: column index → string tensor [rows]."""
        numerical = self.metadata.numerical
        categorical = self.metadata.categorical
        numbers = [_numbers(texts[column.index], column) for column in numerical]
        categories = [self._categories(texts[column.index], column) for column in categorical]
        inputs: Inputs = {}
        if numerical:
            inputs[NUMBERS] = (tf.stack(numbers, axis=1) - self._means) * self._scales
        if categorical:
            inputs[CATEGORIES] = tf.stack(categories, axis=1)
        return inputs

    def encode_table(self, table: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
        """Return the inputs of the models for a prepared table."""
        texts = {
            column.index: tf.constant(
                table[column.index].astype(str).to_numpy(dtype=object), tf.string
            )
            for column in self.metadata.features
        }
        return {name: value.numpy() for name, value in self.encode(texts).items()}

    def _categories(self, texts: Any, column: Column) -> Any:
        """Return the category of each text, int64 [rows]; 0 for the empty text and new ones."""
        if column.treatment is Treatment.HASHING:
            hashed = tf.strings.to_hash_bucket_fast(texts, column.buckets) + 1
            return tf.where(texts == "", tf.zeros_like(hashed), hashed)
        return self._tables[str(column.index)].lookup(texts)


def _numbers(texts: Any, column: Column) -> Any:
    """Return the number of each text, float32 [rows]; the column's mean for the empty text."""
    mean = repr(float(column.statistics.mean or 0.0))
    return tf.strings.to_number(tf.where(texts == "", mean, texts), tf.float32)


def _table(column: Column) -> Any:
    """Return the lookup from a column's categories to their numbers, from 1; 0 for others."""
    keys = tf.constant(column.categories, tf.string)
    numbers = tf.range(1, len(column.categories) + 1, dtype=tf.int64)
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, numbers), default_value=0
    )
