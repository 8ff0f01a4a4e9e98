"""The exported model: a SavedModel that takes CSV rows without the target.

classification    classes: the class of each row
                  probabilities: [rows, classes], in the order of `all_classes`
regression        predictions: a number per row
tab_net           aggregated_mask_values: [rows, columns], how much each column contributed
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..files import join, write_folder
from ..keras_models.rows import Inputs, RowEncoder

ROWS = "csv_row"
ROWS_SPEC = tf.TensorSpec([None], tf.string, name=ROWS)
MASKS = "aggregated_mask_values"


class Predictor(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """From CSV rows to predictions: the function that the SavedModel contains."""

    def __init__(self, encoder: RowEncoder, model: Any) -> None:
        super().__init__()
        self._encoder = encoder
        self.weights = list(model.variables)
        # The model itself is not stored: Keras would trace each of its layers, for half a minute.
        self._compute = partial(model, training=False)
        target = encoder.metadata.target
        self._classes = tf.constant(target.classes, tf.string) if target.classes else None
        self._mean = target.mean
        self._std = target.std

    @tf.function(input_signature=[ROWS_SPEC])  # type: ignore[untyped-decorator]
    def predict(self, csv_row: Any) -> dict[str, Any]:
        """Return the predictions for rows of CSV text, string [rows]; the module's docstring names
        them.

        A number is predicted in standardized units, so it is scaled back.
        """
        inputs: Inputs = self._encoder.encode(self._encoder.decode(csv_row))
        outputs, masks = split_outputs(self._compute(inputs))
        named = {} if masks is None else {MASKS: masks}
        if self._classes is None:
            return {**named, "predictions": outputs[:, 0] * self._std + self._mean}
        rows = tf.shape(csv_row)[0]
        return {
            **named,
            "probabilities": tf.nn.softmax(outputs),
            "classes": tf.gather(self._classes, tf.argmax(outputs, axis=1)),
            "all_classes": tf.tile(self._classes[tf.newaxis, :], [rows, 1]),
        }


def split_outputs(outputs: Any) -> tuple[Any, Any]:
    """Return logits and masks; a model other than TabNet has no masks: None."""
    if isinstance(outputs, list | tuple):
        logits, masks = outputs
        return logits, masks
    return outputs, None


def write_model(job_dir: str, predictor: Predictor) -> None:
    """Write the SavedModel to `model/`."""
    with tempfile.TemporaryDirectory() as scratch:
        tf.saved_model.save(predictor, scratch, signatures={"serving_default": predictor.predict})
        write_folder(Path(scratch), join(job_dir, "model"))
