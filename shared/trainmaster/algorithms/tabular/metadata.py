"""The type and treatment of each column of the data: `artifacts/metadata.json`.

    {
      "version": 1,
      "target": {"type": "categorical", "classes": ["no", "yes"]},
      "columns": [
        {"index": 1, "type": "numerical", "treatment": "none", "statistics": {"mean": 3.2, …}},
        {"index": 2, "type": "categorical", "treatment": "vocabulary",
         "categories": ["apple", "pear"], …}
      ]
    }

Types and treatments have the names of AI Platform Training's page on preprocessing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

VERSION: Final = 1
"""Version of the file's shape."""
TARGET: Final = 0
"""Number of the column that is learnt."""


class ColumnType(StrEnum):
    """The kind of a column's values."""

    NUMERICAL = "numerical"
    CATEGORICAL = "categorical"


class Treatment(StrEnum):
    """The use of a column by models."""

    NONE = "none"  # a number
    IDENTITY = "identity"  # categories that are whole numbers
    VOCABULARY = "vocabulary"  # categories that are texts
    HASHING = "hashing"  # too many categories: each belongs to one of `buckets`
    CONSTANT = "constant"  # dropped
    ROW_IDENTIFIER = "row_identifier"  # dropped

    @property
    def is_feature(self) -> bool:
        """Whether models learn from such a column."""
        return self not in (Treatment.CONSTANT, Treatment.ROW_IDENTIFIER)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a column in the training data. The last four are None for categories."""

    count: int
    """Rows with a value."""
    missing: int
    """Rows without a value."""
    distinct: int
    """Different values."""
    mean: float | None = None
    std: float | None = None
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the data, other than the target."""

    index: int
    """Position in the CSV file, from 0; the target has position 0."""
    type: ColumnType
    treatment: Treatment
    statistics: Statistics
    categories: tuple[str, ...] = ()
    """Known categories in their order; empty unless the treatment is identity or vocabulary."""
    buckets: int = 0
    """Number of buckets of the treatment hashing."""

    @property
    def width(self) -> int:
        """Number of columns after one-hot encoding."""
        return len(self.categories) or self.buckets or 1


@dataclass(frozen=True, slots=True)
class Target:
    """The first column, which a model learns to predict."""

    type: ColumnType
    classes: tuple[str, ...] = ()
    """Classes in the order of their numbers; empty for regression."""
    mean: float = 0.0
    std: float = 1.0
    """Mean and standard deviation of the numbers of a regression, by which they are standardized.
    """


@dataclass(frozen=True, slots=True)
class Metadata:
    """All columns of the data."""

    target: Target
    columns: tuple[Column, ...] = field(default=())
    """All columns except the target."""

    @property
    def features(self) -> tuple[Column, ...]:
        """Columns that models learn from."""
        return tuple(column for column in self.columns if column.treatment.is_feature)

    @property
    def numerical(self) -> tuple[Column, ...]:
        """Features that are numbers."""
        return tuple(column for column in self.features if column.type is ColumnType.NUMERICAL)

    @property
    def categorical(self) -> tuple[Column, ...]:
        """Features that are categories."""
        return tuple(column for column in self.features if column.type is ColumnType.CATEGORICAL)

    def to_json(self) -> bytes:
        return json.dumps(
            {"version": VERSION, **asdict(self)}, indent=1, ensure_ascii=False
        ).encode()
