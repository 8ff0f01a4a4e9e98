"""`boosted_trees`: XGBoost on one machine.

    python -m algorithms.boosted_trees --job-dir gs://B/D --training_data_path gs://B/t.csv \
        --preprocess --objective multi:softmax --num_class 3

With `--preprocess` the files may have categories and missing values; without it only numbers, and
blank cells are XGBoost's own missing values.
"""

from __future__ import annotations

import sys

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


def train(values: Values) -> None:
    """Train, evaluate, store. `values`: the arguments, by name.

    `run` in `program` calls it. Raises DataError for data that a model cannot be trained on.
    """
    parts = _preprocess(values) if values["preprocess"] else _read_unchanged(values)
    training = parts["training"]
    evaluated = parts.get("validation", training)
    check_labels(training.targets, values)
    matrices = {name: part.to_xgboost(values) for name, part in parts.items()}
    if evaluated is training:
        print("no validation data: the metrics are those of the training data", flush=True)
    model, metrics = boost(
        values, matrices["training"], matrices.get("validation", matrices["training"])
    )
    if "test" in matrices:
        test_metrics = evaluate(model, matrices["test"])
        metrics |= {f"test_{name}": value for name, value in test_metrics.items()}
    metrics |= baseline(
        training.targets, evaluated.targets, is_classification=is_classification(values)
    )
    job_dir = str(values["job_dir"])
    write_model(job_dir, model)
    write_metrics(
        job_dir, metrics, model.num_boosted_rounds(), is_classification=is_classification(values)
    )


def _preprocess(values: Values) -> dict[str, Matrix]:
    """Return the parts (training, validation, test) that have rows, analysed, filled and encoded;
    write what clients need to encode rows in the same way.
    """
    job_dir = str(values["job_dir"])
    prepared = prepare(values, ONE_HOT, is_classification=is_classification(values))
    write_metadata(job_dir, prepared.metadata, with_instance_generator=True)
    parts: dict[str, Matrix] = {}
    tables: dict[str, pd.DataFrame] = {}
    for name in PARTS:
        table = prepared.tables[name]
        target = table[0]  # the first column, see tabular/read_csv.py
        features = encode(table, prepared.metadata)
        tables[name] = pd.concat([target, pd.DataFrame(features)], axis=1)
        if len(table):
            parts[name] = Matrix(features, target.to_numpy(dtype=np.float64))
    write_processed_data(job_dir, prepared, tables)
    return parts


def _read_unchanged(values: Values) -> dict[str, Matrix]:
    """Return the parts that have files, as they are: numbers only.

    `csv_weight`: 1 if the second column has the weights of the training rows, as AI Platform
    Training had it.
    """
    parts: dict[str, Matrix] = {}
    for name in PARTS:
        has_weights = values["csv_weight"] == 1 and name == "training"
        table = read_part(values[f"{name}_data_path"])
        if table is not None:
            parts[name] = numeric_matrix(table, f"{name} data", has_weights=has_weights)
    return parts


if __name__ == "__main__":
    sys.exit(run("boosted_trees", train, sys.argv[1:]))
