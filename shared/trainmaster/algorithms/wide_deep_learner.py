"""`wide_deep_learner`: a linear model and a deep one, trained together, each with its own optimizer.

    python -m algorithms.wide_deep_learner --job-dir gs://B/D --training_data_path gs://B/t.csv --preprocess \
        --model_type classification --use_wide --embed_categories --hidden_units 60,30

Source of the model: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016 (arXiv 1606.07792).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import tf_keras

from .keras_models.learner import Task, default_loss, train
from .keras_models.optimizers import create_optimizer
from .keras_models.parts import deep_model, linear_model
from .keras_models.rows import RowEncoder
from .program import run


def create_model(encoder: RowEncoder, task: Task) -> Any:
    """Return the compiled model; only its deep part with `--use_wide=false`."""
    values = task.values
    hidden_units, dropout = values["hidden_units"], values["dnn_dropout"]
    deep = deep_model(
        encoder,
        task.outputs,
        hidden_units if isinstance(hidden_units, tuple) else (),
        float(dropout) if isinstance(dropout, int | float) else 0.0,
        embeds_categories=bool(values["embed_categories"]),
    )
    if not values["use_wide"]:
        deep.compile(create_optimizer(values, "dnn_"), default_loss(task))
        return deep
    model = tf_keras.experimental.WideDeepModel(linear_model(encoder, task.outputs), deep)
    model.compile([create_optimizer(values), create_optimizer(values, "dnn_")], default_loss(task))
    return model


def main(arguments: Sequence[str]) -> int:
    return run("wide_deep_learner", partial(train, create_model), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
