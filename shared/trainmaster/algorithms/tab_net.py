"""`tab_net`: a deep model that selects the columns it decides by, and reports them with each
prediction.

    python -m algorithms.tab_net --job-dir gs://B/D --training_data_path gs://B/t.csv --preprocess \
        --model_type classification --max_steps 1000 --learning_rate 0.02
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import tensorflow as tf
import tf_keras

from .arguments.argument import Values, integer_in, number_in
from .arguments.tab_net import ghost_batches
from .keras_models.learner import Task, default_loss, train
from .keras_models.rows import RowEncoder
from .keras_models.tab_net_model import Sizes, TabNet
from .program import run

SQUARE_EPSILON = 1e-12
"""Keeps the gradient of a root mean square finite where all errors are 0."""


def create_model(encoder: RowEncoder, task: Task) -> Any:
    """Return the compiled model. `keras_models.learner.train` calls this, then trains it."""
    values = task.values
    model = TabNet(encoder, task.outputs, model_sizes(values))
    rate = tf_keras.optimizers.schedules.ExponentialDecay(
        values["learning_rate"], values["decay_every"], values["decay_rate"], staircase=True
    )
    model.compile(
        tf_keras.optimizers.Adam(rate, clipvalue=values["gradient_thresh"]), create_loss(task)
    )
    return model


def model_sizes(values: Values) -> Sizes:
    """Return the shape of the model that the arguments describe."""
    width = integer_in(values, "feature_dim")
    wanted_width = round(width * number_in(values, "feature_dim_ratio"))
    # The decision and the next mask both get at least one element.
    decision_width = min(max(1, wanted_width), width - 1)
    layers = integer_in(values, "num_transformer_layers")
    shared = round(layers * number_in(values, "num_transformer_layers_ratio"))
    whole_batches = ghost_batches(
        integer_in(values, "batch_size"), number_in(values, "batch_size_ratio")
    )
    return Sizes(
        width=width,
        decision_width=decision_width,
        steps=integer_in(values, "num_decision_steps"),
        relaxation=number_in(values, "relaxation_factor"),
        shared_layers=shared,
        own_layers=layers - shared,
        sparsity_loss_weight=number_in(values, "sparsity_loss_weight"),
        ghost_batches=whole_batches or 1,  # None is refused before
        momentum=number_in(values, "batch_momentum"),
        large_category_dim=integer_in(values, "large_category_dim"),
        large_category_thresh=integer_in(values, "large_category_thresh"),
        yeo_johnson=bool(values["yeo_johnson_transform"]),
    )


def create_loss(task: Task) -> Any:
    """Return the loss that `loss_function_type` names, a function of targets and outputs."""
    values = task.values
    match values["loss_function_type"]:
        case "weighted_cross_entropy":
            # Only the second class has a weight of its own.
            weights = tf.constant(
                [1.0, number_in(values, "class_weight")] + [1.0] * (task.outputs - 2)
            )
            return partial(_weighted_cross_entropy, weights)
        case "focal_loss":
            return partial(
                _focal_loss,
                number_in(values, "alpha_focal_loss"),
                number_in(values, "gamma_focal_loss"),
            )
        case "rmse":
            return lambda targets, outputs: tf.sqrt(
                tf.reduce_mean(tf.square(outputs[:, 0] - _flat(targets))) + SQUARE_EPSILON
            )
        case "mae":
            return tf_keras.losses.MeanAbsoluteError()
        case _:
            return default_loss(task)


def _weighted_cross_entropy(weights: Any, targets: Any, logits: Any) -> Any:
    """Return the mean cross entropy, in which each row counts with the weight of its class.

    `targets`: class numbers [rows] or [rows, 1]; `logits`: [rows, classes].
    """
    labels = tf.cast(_flat(targets), tf.int64)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(losses * tf.gather(weights, labels))


def _focal_loss(alpha: float, gamma: float, targets: Any, logits: Any) -> Any:
    """Return the focal loss; `alpha` is the weight of the second class, 1 - `alpha` that of the
    others.

    Rows that the model already gets right count little, by a power of `gamma`. Source: Lin et al.
    (arXiv 1708.02002).
    """
    labels = tf.cast(_flat(targets), tf.int64)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    weights = tf.where(labels == 1, alpha, 1 - alpha)
    return tf.reduce_mean(weights * tf.pow(1 - tf.exp(-losses), gamma) * losses)


def _flat(targets: Any) -> Any:
    """Return targets of shape [rows] or [rows, 1] in the shape [rows]."""
    return tf.reshape(targets, [-1])


if __name__ == "__main__":
    sys.exit(run("tab_net", partial(train, create_model), sys.argv[1:]))
