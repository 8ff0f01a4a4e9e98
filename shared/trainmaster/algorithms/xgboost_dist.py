"""`xgboost_dist`: XGBoost on a master and workers.

    python -m algorithms.xgboost_dist --job-dir gs://B/D --training_data_path 'gs://B/train/*.csv' \
        --validation_data_path 'gs://B/validation/*.csv' --objective binary:logistic

The files hold numbers only. Replica i of n reads the files i, i + n, i + 2n … of each group, so a
group needs at least one file per replica. With files of similar size, the replicas are equally
fast. `xgboost_training.peers` connects the replicas.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import xgboost
from xgboost import collective

from .arguments.argument import Values, number_in
from .errors import DataError
from .files import find_files
from .program import run
from .results import write_metrics
from .tabular.preparation import PARTS
from .tabular.read_csv import read_csv
from .xgboost_training.matrices import Matrix, check_labels, numeric_matrix
from .xgboost_training.parameters import is_classification
from .xgboost_training.peers import connected_replicas
from .xgboost_training.training import boost, evaluate, write_model


def train(values: Values) -> None:
    """Connect the replicas, train on all, store on rank 0.

    Every replica finds the files before it connects, so that all refuse a wrong path in the same
    way.
    """
    files = {
        name: _find_files(values, name) for name in PARTS if values[f"{name}_data_path"] is not None
    }
    with connected_replicas(number_in(values, "wait_minutes") * 60):
        _train_connected(values, files)


def _train_connected(values: Values, files: dict[str, list[str]]) -> None:
    """Train on the connected replicas; `files`: those of all replicas, by group."""
    training = _read_share(values, "training", files)
    validation = _read_share(values, "validation", files) if "validation" in files else training
    check_labels(training.targets, values)
    matrix = training.to_xgboost(values)
    evaluated = validation.to_xgboost(values) if validation is not training else matrix
    model, metrics = boost(values, matrix, evaluated, device=_device())
    metrics |= _baseline(training, validation, is_classification=is_classification(values))
    if "test" in files:
        test = _read_share(values, "test", files).to_xgboost(values)
        metrics |= {f"test_{name}": value for name, value in evaluate(model, test).items()}
    if collective.get_rank() == 0:
        job_dir = str(values["job_dir"])
        write_model(job_dir, model)
        metrics["replicas"] = collective.get_world_size()
        write_metrics(
            job_dir,
            metrics,
            model.num_boosted_rounds(),
            is_classification=is_classification(values),
        )


def _find_files(values: Values, name: str) -> list[str]:
    """Return all files of a group: training, validation or test.

    Raises DataError if there are fewer than replicas.
    """
    pattern = values[f"{name}_data_path"]
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    files = find_files(str(pattern))
    if len(files) < world_size:
        problem = (
            f"--{name}_data_path {pattern} names {len(files)} files, and the job has {world_size}"
            " replicas"
        )
        raise DataError(
            f"{problem}; split the data into at least {world_size} files of similar size, or use"
            " fewer workers"
        )
    return files


def _read_share(values: Values, name: str, files: dict[str, list[str]]) -> Matrix:
    """Return this replica's rows of a group of files."""
    own = files[name][collective.get_rank() :: collective.get_world_size()]
    has_weights = values["csv_weight"] == 1 and name == "training"
    matrix = numeric_matrix(read_csv(own), f"{name} data", has_weights=has_weights)
    print(
        f"{name} data: {len(matrix.targets)} rows from {len(own)} of {len(files[name])} files",
        flush=True,
    )
    return matrix


def _baseline(training: Matrix, validation: Matrix, *, is_classification: bool) -> dict[str, float]:
    """Return the metric of a constant prediction, as `results.baseline` does, but over the rows of
    all replicas: each adds its sums to those of the others.
    """
    if not is_classification:
        sums = np.array([training.targets.sum(), len(training.targets)], dtype=np.float64)
        total, count = collective.allreduce(sums, collective.Op.SUM)
        errors = np.array(
            [((validation.targets - total / count) ** 2).sum(), len(validation.targets)]
        )
        squares, rows = collective.allreduce(errors, collective.Op.SUM)
        return {"baseline_rmse": float(np.sqrt(squares / rows))}
    highest = collective.allreduce(np.array([training.targets.max()]), collective.Op.MAX)
    classes = int(highest[0]) + 1
    own_counts = np.bincount(training.targets.astype(np.int64), minlength=classes)
    counts = collective.allreduce(own_counts.astype(np.float64), collective.Op.SUM)
    hits = np.array(
        [(validation.targets == np.argmax(counts)).sum(), len(validation.targets)], dtype=np.float64
    )
    right, rows = collective.allreduce(hits, collective.Op.SUM)
    return {"baseline_accuracy": float(right / rows)}


def _device() -> str:
    """Return `cuda` on a VM with a GPU and a build of XGBoost that can use it."""
    can_use_gpu = xgboost.build_info().get("USE_CUDA")
    return "cuda" if can_use_gpu and Path("/dev/nvidia0").exists() else "cpu"


if __name__ == "__main__":
    sys.exit(run("xgboost_dist", train, sys.argv[1:]))
