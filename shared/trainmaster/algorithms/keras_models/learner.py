"""The whole run of a Keras algorithm: tables, model, training, export, metrics.

`linear_learner`, `wide_deep_learner` and `tab_net` call `train`, each with its own function that
creates a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from ..arguments.argument import Values, integer_in
from ..keras_models.export import Predictor, split_outputs, write_model
from ..keras_models.rows import RowEncoder
from ..keras_models.training import Array, Rows, fit
from ..results import baseline, write_metadata, write_metrics, write_processed_data
from ..tabular.analysis import EMBEDDED
from ..tabular.metadata import Target
from ..tabular.preparation import PARTS, Prepared, prepare

EVALUATION_BATCH = 4_096
"""Rows that the model evaluates at a time: more would need much memory."""


@dataclass(frozen=True, slots=True)
class Task:
    """The kind of target that a model learns."""

    target: Target
    values: Values

    @property
    def is_classification(self) -> bool:
        return bool(self.target.classes)

    @property
    def outputs(self) -> int:
        """Number of outputs: one per class, or one."""
        return len(self.target.classes) or 1


CreateModel = Callable[[RowEncoder, Task], Any]
"""Returns a compiled model that maps the encoder's inputs to logits, or to the standardized number.
"""


def train(create_model: CreateModel, values: Values) -> None:
    """Prepare the data, train, evaluate and store.

    Raises DataError for data that a model cannot be trained on. Without validation rows, the
    training rows are evaluated.
    """
    is_classification = values["model_type"] == "classification"
    job_dir = str(values["job_dir"])
    tf_keras.utils.set_random_seed(integer_in(values, "seed"))
    prepared = prepare(values, EMBEDDED, is_classification=is_classification)
    write_metadata(job_dir, prepared.metadata, with_instance_generator=False)
    if values["preprocess"]:
        write_processed_data(job_dir, prepared)
    encoder = RowEncoder(prepared.metadata)
    task = Task(prepared.metadata.target, values)
    rows = {name: _rows(encoder, prepared, name) for name in PARTS}
    evaluated = rows["validation"] if len(rows["validation"]) else rows["training"]
    if evaluated is rows["training"]:
        print("no validation data: the metrics are those of the training data", flush=True)
    model = create_model(encoder, task)
    step = fit(
        model, values, rows["training"], partial(evaluate, model, task, evaluated, limited=True)
    )
    metrics = evaluate(model, task, evaluated)
    if len(rows["test"]):
        test_metrics = evaluate(model, task, rows["test"])
        metrics |= {f"test_{name}": value for name, value in test_metrics.items()}
    metrics |= baseline(
        _to_original_units(rows["training"].targets, task),
        _to_original_units(evaluated.targets, task),
        is_classification=is_classification,
    )
    write_model(job_dir, Predictor(encoder, model))
    write_metrics(job_dir, metrics, step, is_classification=is_classification)


def evaluate(model: Any, task: Task, rows: Rows, *, limited: bool = False) -> dict[str, float]:
    """Return the metrics of the model on the rows.

    `limited`: only as many batches as `eval_steps` allows.
    """
    count = len(rows)
    steps = integer_in(task.values, "eval_steps")
    if limited and steps > 0:
        count = min(count, steps * integer_in(task.values, "batch_size"))
    outputs = _outputs(model, rows, count)
    targets = rows.targets[:count]
    if not task.is_classification:
        errors = (outputs[:, 0] - targets) * task.target.std
        mse = float(np.mean(errors**2))
        return {"loss": mse, "rmse": mse**0.5, "mae": float(np.mean(np.abs(errors)))}
    # The logarithm of the softmax; without the shift, large logits would overflow.
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    metrics = {
        "loss": -float(np.mean(log_probabilities[np.arange(count), targets])),
        "accuracy": float(np.mean(outputs.argmax(axis=1) == targets)),
    }
    has_both_classes = 0 < targets.sum() < count
    if task.outputs == 2 and has_both_classes:  # noqa: PLR2004 - two classes
        area = tf_keras.metrics.AUC(num_thresholds=1_000)
        area.update_state(targets, np.exp(log_probabilities[:, 1]))
        metrics["auc"] = float(area.result())
    return metrics


def _outputs(model: Any, rows: Rows, count: int) -> Array:
    """Return the model's outputs for the first rows."""
    parts = []
    for start in range(0, count, EVALUATION_BATCH):
        end = min(count, start + EVALUATION_BATCH)
        inputs = {name: tf.constant(values[start:end]) for name, values in rows.inputs.items()}
        outputs, _ = split_outputs(model(inputs, training=False))
        parts.append(outputs.numpy().astype(np.float64))
    return np.concatenate(parts)


def _rows(encoder: RowEncoder, prepared: Prepared, name: str) -> Rows:
    """Return the rows of a part (training, validation, test) as the model gets them."""
    table = prepared.tables[name]
    target = prepared.metadata.target
    if table.empty:
        return Rows(inputs={}, targets=np.zeros(0))
    if target.classes:
        return Rows(encoder.encode_table(table), table[0].to_numpy(dtype=np.int64))
    standardized = (table[0].to_numpy(dtype=np.float64) - target.mean) / target.std
    return Rows(encoder.encode_table(table), standardized.astype(np.float32))


def _to_original_units(targets: Array, task: Task) -> Array:
    """Return targets in their own units."""
    return targets if task.is_classification else targets * task.target.std + task.target.mean


def default_loss(task: Task) -> Any:
    """Return the loss of logits, or of a standardized number."""
    if task.is_classification:
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return tf_keras.losses.MeanSquaredError()
