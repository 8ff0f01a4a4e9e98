"""`boosted_trees`: XGBoost on one machine.

    python -m algorithms.boosted_trees --job-dir gs://B/D --training_data_path gs://B/t.csv --preprocess \
        --objective multi:softmax --num_class 3

With `--preprocess` the files may have categories and missing values; without it only numbers, and blank cells are
XGBoost's own missing values.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .arguments.argument import Values
from .program import run
from .results import baseline, write_metadata, write_metrics, write_processed_data
from .tabular.analysis import ONE_HOT
from .tabular.encoding import encode
from .tabular.preparation import PARTS, prepare, read_part
from .xgboost_training.matrices import Matrix, check_labels, numeric_matrix
from .xgboost_training.parameters import is_classification
from .xgboost_training.training import boost, evaluate, write_model


@dataclass(frozen=True, slots=True)
class Parts:
    training: Matrix
    validation: Matrix | None
    test: Matrix | None


def train(values: Values) -> None:
    """Train, evaluate, store."""
    parts = _preprocess(values) if values["preprocess"] else _read_unchanged(values)
    check_labels(parts.training.targets, values)
    matrices = {name: part.to_xgboost(values) for name in PARTS if (part := getattr(parts, name)) is not None}
    evaluated = parts.validation or parts.training
    if parts.validation is None:
        print("no validation data: the metrics are those of the training data", flush=True)
    model, metrics = boost(values, matrices["training"], matrices.get("validation", matrices["training"]))
    if "test" in matrices:
        metrics |= {f"test_{name}": value for name, value in evaluate(model, matrices["test"]).items()}
    metrics |= baseline(parts.training.targets, evaluated.targets, is_classification=is_classification(values))
    job_dir = str(values["job_dir"])
    write_model(job_dir, model)
    write_metrics(job_dir, metrics, model.num_boosted_rounds(), is_classification=is_classification(values))


def _preprocess(values: Values) -> Parts:
    job_dir = str(values["job_dir"])
    prepared = prepare(values, ONE_HOT, is_classification=is_classification(values))
    write_metadata(job_dir, prepared.metadata, with_instance_generator=True)
    parts: dict[str, Matrix | None] = {}
    tables: dict[str, pd.DataFrame] = {}
    for name in PARTS:
        table = prepared.part(name)
        target = table[0]  # the first column, see tabular/read_csv.py
        features, targets = encode(table, prepared.metadata), target.to_numpy(dtype=np.float64)
        tables[name] = pd.concat([target, pd.DataFrame(features)], axis=1)
        parts[name] = Matrix(features, targets) if len(table) else None
    write_processed_data(job_dir, prepared, tables)
    training = parts["training"]
    if training is None:
        raise ValueError("prepare returns training rows or raises DataError")
    return Parts(training, parts["validation"], parts["test"])


def _read_unchanged(values: Values) -> Parts:
    parts: dict[str, Any] = {}
    for name in PARTS:
        table = read_part(values[f"{name}_data_path"])
        has_weights = values["csv_weight"] == 1 and name == "training"
        parts[name] = None if table is None else numeric_matrix(table, f"{name} data", has_weights=has_weights)
    return Parts(**parts)


def main(arguments: Sequence[str]) -> int:
    return run("boosted_trees", train, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
