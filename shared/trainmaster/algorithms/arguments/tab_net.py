"""Arguments of `tab_net`.

`_number(NAME, DEFAULT, HELP)` declares one. Its value is from `low` to `high`, both included; with
`is_open`, `low` itself is not allowed.

Source of names and defaults: its successor on Vertex AI (python-aiplatform 1.40).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from ..arguments.argument import (
    Argument,
    ArgumentProblem,
    ArgumentTable,
    Finding,
    Kind,
    Source,
    Values,
    argument_maker,
)
from ..arguments.common import TABULAR, check_splits
from ..arguments.keras import TRAINING

CLASSIFICATION_LOSSES: Final = ("cross_entropy", "weighted_cross_entropy", "focal_loss")
REGRESSION_LOSSES: Final = ("rmse", "mae", "mse")
_number: Final = argument_maker(Kind.NUMBER, Source.VERTEX)
_integer: Final = argument_maker(Kind.INTEGER, Source.VERTEX)
_LOSSES: Final = ("default", *CLASSIFICATION_LOSSES, *REGRESSION_LOSSES)
_MODEL: Final = (
    Argument(
        "learning_rate", Kind.NUMBER, "First learning rate (Adam).", 0.02, low=0, is_open=True
    ),
    _integer("feature_dim", 64, "Width of the feature transformers.", low=2),
    _number(
        "feature_dim_ratio",
        0.5,
        "Share of feature_dim that goes to the decision.",
        low=0,
        high=0.95,
        is_open=True,
    ),
    _integer("num_decision_steps", 6, "Number of decision steps.", low=2),
    _number(
        "relaxation_factor",
        1.5,
        "How often a column may be used again; 1: by one step only.",
        low=1,
    ),
    _integer("decay_every", 100, "Steps between two reductions of the learning rate.", low=1),
    _number("decay_rate", 0.95, "Factor of each reduction.", low=0, high=1, is_open=True),
    _number(
        "gradient_thresh", 2000.0, "Largest absolute value of a gradient.", low=0, is_open=True
    ),
    _number("sparsity_loss_weight", 0.00001, "Weight of the loss that makes masks sparse.", low=0),
    _number("batch_momentum", 0.95, "Momentum of batch normalization.", low=0, high=0.9999),
    _number(
        "batch_size_ratio",
        0.25,
        "Size of a ghost batch as a share of batch_size.",
        low=0,
        high=1,
        is_open=True,
    ),
    _integer("num_transformer_layers", 4, "Layers of each feature transformer.", low=1),
    _number(
        "num_transformer_layers_ratio",
        0.25,
        "Share of those that all steps have in common.",
        low=0,
        high=1,
    ),
    _number(
        "class_weight",
        1.0,
        "Weight of the second class in weighted_cross_entropy.",
        low=0,
        is_open=True,
    ),
    argument_maker(Kind.TEXT, Source.VERTEX)(
        "loss_function_type", "default", "Loss; default is cross_entropy or mse.", choices=_LOSSES
    ),
    _number("alpha_focal_loss", 0.25, "Weight of focal_loss.", low=0, high=1),
    _number("gamma_focal_loss", 2.0, "Exponent of focal_loss.", low=0),
    _integer(
        "large_category_dim", 1, "Width of the embedding of a column with many categories.", low=1
    ),
    _integer(
        "large_category_thresh", 300, "Number of categories from which a column has many.", low=1
    ),
    Argument(
        "yeo_johnson_transform",
        Kind.FLAG,
        "Learn a Yeo-Johnson power transform of numbers.",
        default=False,
        source=Source.VERTEX,
    ),
)


def check_loss(values: Values, _given: frozenset[str]) -> Iterator[Finding]:
    """Check that the loss belongs to the type of model."""
    allowed = (
        CLASSIFICATION_LOSSES if values["model_type"] == "classification" else REGRESSION_LOSSES
    )
    loss = values["loss_function_type"]
    if loss != "default" and loss not in allowed:
        problem = (
            f"must be one of default, {', '.join(allowed)} for {values['model_type']}, not {loss!r}"
        )
        yield ArgumentProblem(
            "loss_function_type", problem, example=f"--loss_function_type={allowed[0]}"
        )


def check_ghost_batch(values: Values, _given: frozenset[str]) -> Iterator[Finding]:
    """Check that a batch consists of whole ghost batches."""
    batch = values["batch_size"]
    ratio = values["batch_size_ratio"]
    if not isinstance(batch, int) or not isinstance(ratio, int | float):
        return
    if ghost_batches(batch, ratio) is None:
        problem = (
            f"must divide a batch of {batch} rows into equal ghost batches of whole rows, which"
            f" {ratio:g} does not"
        )
        yield ArgumentProblem("batch_size_ratio", problem, example="--batch_size_ratio=1")


def ghost_batches(batch_size: int, ratio: float) -> int | None:
    """Return the number of ghost batches per batch; None if they are not of equal size."""
    rows = round(batch_size * ratio)
    if rows < 1 or not math.isclose(rows, batch_size * ratio) or batch_size % rows:
        return None
    return batch_size // rows


TAB_NET: Final = ArgumentTable(
    (*TABULAR, *TRAINING, *_MODEL), (check_splits, check_loss, check_ghost_batch)
)
