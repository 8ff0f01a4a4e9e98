"""`wide_deep_learner`: a linear model and a deep one, trained together, each with its own
optimizer.

    python -m algorithms.wide_deep_learner --job-dir gs://B/D --training_data_path gs://B/t.csv \
        --preprocess --model_type classification --use_wide --embed_categories --hidden_units 60,30

Source of the model: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016 (arXiv
1606.07792).
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import tf_keras

from .arguments.argument import number_in
from .keras_models.learner import Task, default_loss, train
from .keras_models.optimizers import create_optimizer
from .keras_models.parts import deep_model, linear_model
from .keras_models.rows import RowEncoder
from .program import run


def create_model(encoder: RowEncoder, task: Task) -> Any:
    """Return the compiled model; only its deep part with `--use_wide=false`.

    Arguments of the deep part have the prefix `dnn_`.
    """
    values = task.values
    hidden_units = values["hidden_units"]
    deep = deep_model(
        encoder,
        task.outputs,
        hidden_units if isinstance(hidden_units, tuple) else (),
        number_in(values, "dnn_dropout"),
        embeds_categories=bool(values["embed_categories"]),
    )
    if not values["use_wide"]:
        deep.compile(create_optimizer(values, "dnn_"), default_loss(task))
        return deep
    model = tf_keras.experimental.WideDeepModel(linear_model(encoder, task.outputs), deep)
    model.compile([create_optimizer(values), create_optimizer(values, "dnn_")], default_loss(task))
    return model


if __name__ == "__main__":
    sys.exit(run("wide_deep_learner", partial(train, create_model), sys.argv[1:]))
