"""`linear_learner`: a linear model for classes or numbers, one of AI Platform Training's
algorithms.

A job that names it as its `algorithm` runs this program on its VMs. There the package is named
`algorithms`, without the rest of Trainmaster; hence the relative imports.

    python -m algorithms.linear_learner --job-dir gs://B/D --training_data_path gs://B/t.csv \
        --preprocess --model_type regression --max_steps 2000
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from .keras_models.learner import Task, default_loss, train
from .keras_models.optimizers import create_optimizer
from .keras_models.parts import linear_model
from .keras_models.rows import RowEncoder
from .program import run


def create_model(encoder: RowEncoder, task: Task) -> Any:
    """Return the compiled model. `keras_models.learner.train` calls this, then trains it.

    `encoder` turns rows of texts into tensors; `task` has the target and the arguments.
    """
    model = linear_model(encoder, task.outputs)
    model.compile(create_optimizer(task.values), default_loss(task))
    return model


if __name__ == "__main__":
    sys.exit(run("linear_learner", partial(train, create_model), sys.argv[1:]))
