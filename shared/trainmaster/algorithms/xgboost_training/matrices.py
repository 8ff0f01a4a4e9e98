"""Features, targets and weights of rows, as XGBoost gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xgboost

from ..arguments.argument import Values
from ..errors import DataError
from ..tabular.read_csv import to_numbers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The rows of a table, or a replica's share of them. Arrays have one element or row per row of
    it.
    """

    features: Array
    """float32 [rows, features], NaN for missing values."""
    targets: Array
    """float64 [rows]: numbers of classes, or numbers to be learnt."""
    weights: Array | None = None
    """float64 [rows]; None: all rows count the same."""

    def to_xgboost(self, values: Values) -> xgboost.DMatrix:
        """Return the rows as XGBoost reads them. The argument `nthread` is the number of its
        threads.
        """
        return xgboost.DMatrix(
            self.features, self.targets, weight=self.weights, nthread=values["nthread"]
        )


def numeric_matrix(table: pd.DataFrame, name: str, *, has_weights: bool) -> Matrix:
    """Return the rows of a table: the first column is the target, and the features follow.

    `name`: what messages call the rows, in the plural. `has_weights`: the second column has the
    weights of the rows.

    Raises DataError for a cell that is not a number, and for a missing target or weight.
    """
    numbers = table.apply(to_numbers)
    for index in table.columns:
        wrong = table[index][table[index].notna() & numbers[index].isna()]
        if len(wrong):
            raise DataError(
                f"column {index + 1} of the {name} has the value {wrong.iloc[0]!r}, which is not a"
                " number; encode the categories, or use boosted_trees with --preprocess"
            )
    first_feature = 2 if has_weights else 1
    if numbers.iloc[:, :first_feature].isna().any(axis=None):
        or_weight = " or weight" if has_weights else ""
        raise DataError(f"the {name} have rows without a target{or_weight}; remove them")
    if numbers.shape[1] <= first_feature:
        and_weight = " and the weight" if has_weights else ""
        raise DataError(f"the {name} have no features; they follow the target{and_weight}")
    content = numbers.to_numpy(dtype=np.float64)
    weights = content[:, 1] if has_weights else None
    return Matrix(content[:, first_feature:].astype(np.float32), content[:, 0], weights)


def check_labels(targets: Array, values: Values) -> None:
    """Raise DataError if the targets do not fit the objective: the argument `objective`, with
    XGBoost's names, such as `multi:softmax` for several classes and `binary:logistic` for two.
    """
    objective = str(values["objective"])
    if objective.startswith("multi:"):
        classes = values["num_class"]
        largest = int(targets.max())
        if isinstance(classes, int) and not _are_class_numbers(targets, classes):
            raise DataError(
                f"the target has classes up to {largest}, and {objective} with"
                f" --num_class={classes} needs whole numbers from 0 to {classes - 1}; correct"
                " --num_class, or use --preprocess"
            )
    elif objective.startswith("binary:") and not np.isin(targets, (0, 1)).all():
        wrong = targets[~np.isin(targets, (0, 1))][0]
        raise DataError(
            f"the target has the value {wrong:g}, and {objective} needs 0 and 1; select another"
            " objective"
        )


def _are_class_numbers(targets: Array, classes: int) -> bool:
    """Return whether the targets are whole numbers from 0 to `classes` - 1."""
    is_in_range = targets.min() >= 0 and targets.max() < classes
    return bool(is_in_range and not (targets % 1).any())
