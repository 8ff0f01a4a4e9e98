"""The files that an algorithm writes below the job directory, and the report of its metrics.

    model/              the trained model, and deployment_config.yaml
    processed_data/     training.csv, validation.csv, test.csv, with --preprocess
    artifacts/          metadata.json; for XGBoost also instance_generator.py
    experiment/         checkpoints, TensorBoard's summaries
    metrics.json        the metrics at the end

Source of the folders: AI Platform Training's pages on its built-in algorithms, "the service" below.
metrics.json is ours. Imports are relative, because these modules are also a package of their own,
which is installed beside the user's program.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from .files import join, write_file
from .tabular.metadata import Metadata
from .tabular.preparation import PARTS, Prepared

Metrics = Mapping[str, float]

METRIC_FILE_VARIABLE: Final = "CLOUD_ML_HP_METRIC_FILE"
"""Environment variable of trials: the file from which the tuning job reads their metrics."""
RECORDS_MAX: Final = 100
"""Records that a metric file keeps. Source: cloudml-hypertune."""


def checkpoint_folder(job_dir: str) -> str | None:
    """Return where this job keeps its checkpoints; None for a run without a job, which starts from
    the beginning.
    """
    job_id = os.environ.get("CLOUD_ML_JOB_ID")
    return join(job_dir, "experiment", "checkpoints", job_id) if job_id else None


def report_metrics(metrics: Metrics, step: int) -> None:
    """Append a record to the file from which tuning jobs read metrics, in the form of the library
    cloudml-hypertune.

    Each metric is a tag of the record. Without the variable of a trial nothing is written.
    """
    path = os.environ.get(METRIC_FILE_VARIABLE)
    if not path:
        return
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    record = {name: str(value) for name, value in metrics.items()}
    record |= {
        "global_step": str(step),
        "timestamp": str(time.time()),
        "trial": os.environ.get("CLOUD_ML_TRIAL_ID", "0"),
    }
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    kept = lines[-(RECORDS_MAX - 1) :]
    scratch = file.with_name(f".{file.name}.part")
    scratch.write_text("\n".join([*kept, json.dumps(record)]) + "\n", encoding="utf-8")
    scratch.replace(file)


def write_metadata(job_dir: str, metadata: Metadata, *, with_instance_generator: bool) -> None:
    """Write what clients need to encode their rows: the type and treatment of each column, and a
    program for it.
    """
    write_file(join(job_dir, "artifacts", "metadata.json"), metadata.to_json())
    if with_instance_generator:
        source = Path(__file__).parent / "tabular" / "instance_generator.py"
        write_file(join(job_dir, "artifacts", source.name), source.read_bytes())


def write_processed_data(
    job_dir: str, prepared: Prepared, tables: Mapping[str, pd.DataFrame] | None = None
) -> None:
    """Write the tables that the model is trained on, as CSV files with the target first.

    `tables`: by part, if the model is trained on other tables than the prepared ones: XGBoost's
    have its encoding.
    """
    for name in PARTS:
        table = tables[name] if tables else _with_classes(prepared.tables[name], prepared.metadata)
        if len(table):
            text = table.to_csv(header=False, index=False, lineterminator="\n")
            write_file(join(job_dir, "processed_data", f"{name}.csv"), text.encode())


def _with_classes(table: pd.DataFrame, metadata: Metadata) -> pd.DataFrame:
    """Return the table with the names of the classes instead of their numbers."""
    classes = metadata.target.classes
    if not classes:
        return table
    named = table.copy()
    named[0] = [classes[number] for number in table[0]]
    return named


def write_metrics(job_dir: str, metrics: Metrics, step: int, *, is_classification: bool) -> None:
    """Write model/deployment_config.yaml, which programs read, and metrics.json.

    `step`: training steps or boosting rounds that were done. `metrics` has `accuracy` (a share) or
    `rmse`.
    """
    print(" ".join(f"{name} {value:.5g}" for name, value in metrics.items()), flush=True)
    name = "accuracy" if is_classification else "rmse"
    value = metrics[name] * 100 if is_classification else metrics[name]  # the service wrote percent
    labels = f"labels:\n  {name}: {value:.6g}\n  global_step: {step}\n"
    write_file(join(job_dir, "model", "deployment_config.yaml"), labels.encode())
    document = {**metrics, "global_step": step}
    write_file(join(job_dir, "metrics.json"), json.dumps(document, indent=2).encode())


def baseline(
    targets: np.ndarray, evaluated: np.ndarray, *, is_classification: bool
) -> dict[str, float]:
    """Return the metric of a constant prediction of the `evaluated` targets: of the most frequent
    class in the training targets, or of their mean.

    Both arrays have one element per row.
    """
    if is_classification:
        labels, counts = np.unique(targets, return_counts=True)
        return {"baseline_accuracy": float(np.mean(evaluated == labels[np.argmax(counts)]))}
    return {"baseline_rmse": float(np.sqrt(np.mean((evaluated - targets.mean()) ** 2)))}
