"""Arguments of `linear_learner` and `wide_deep_learner`.

Source of names: jobs that ran on AI Platform Training. Source of defaults: the successors of the
algorithms on Vertex AI, which have the same argument names.
"""

from __future__ import annotations

from typing import Final

from ..arguments.argument import Argument, ArgumentTable, Kind, Source, argument_maker
from ..arguments.common import TABULAR, check_splits

OPTIMIZERS: Final = ("adam", "ftrl", "sgd")
STEPS_MIN: Final = 2_000
"""Fewest training steps if the user does not name their number."""
PASSES: Final = 20
"""Number of times that each training row is used if the user does not name a number of steps."""
STEPS_DEFAULT: Final = f"-1: {PASSES} passes over the training data, and at least {STEPS_MIN} steps"

DECAY_MAX: Final = 0.999999
"""Largest decay of Adam's moments: at 1, they would never change."""

_integer: Final = argument_maker(Kind.INTEGER, Source.VERTEX)
_number: Final = argument_maker(Kind.NUMBER, Source.VERTEX)
_TYPES: Final = ("classification", "regression")
MODEL_TYPE: Final = Argument(
    "model_type",
    Kind.TEXT,
    "What is learnt: a class, or a number.",
    is_required=True,
    choices=_TYPES,
)
TRAINING: Final = (
    MODEL_TYPE,
    _integer(
        "max_steps", -1, f"Number of training steps, one batch in each. {STEPS_DEFAULT}.", low=-1
    ),
    _integer("max_train_secs", -1, "Longest training in seconds; -1: no limit.", low=-1),
    _integer("batch_size", 100, "Rows per step.", low=1),
    _integer("eval_steps", 0, "Batches per evaluation; 0: all rows.", low=0),
    _integer("eval_frequency_secs", 600, "Seconds between evaluations and checkpoints.", low=1),
    _integer("seed", 1, "Seed of all random numbers.", low=0),
)


def optimizer_arguments(
    prefix: str, what: str, optimizer: Argument, learning_rate: float
) -> tuple[Argument, ...]:
    """Return the arguments of one optimizer.

    `prefix`: of their names. `what`: the part of the model that it trains, the end of each help
    text. `optimizer`: the argument that selects it. `learning_rate`: its default.
    """

    def number(name: str, default: float, text: str, high: float | None = None) -> Argument:
        return _number(f"{prefix}{name}", default, f"{text} {what}", low=0, high=high)

    return (
        Argument(
            f"{prefix}learning_rate",
            Kind.NUMBER,
            f"Learning rate {what}",
            learning_rate,
            low=0,
            is_open=True,
        ),
        optimizer,
        number("l1_regularization_strength", 0.0, "L1 regularization (ftrl)"),
        number("l2_regularization_strength", 0.0, "L2 regularization (ftrl)"),
        number("l2_shrinkage_regularization_strength", 0.0, "L2 shrinkage (ftrl)"),
        number("beta_1", 0.9, "Decay of the first moment (adam)", high=DECAY_MAX),
        number("beta_2", 0.999, "Decay of the second moment (adam)", high=DECAY_MAX),
    )


def _optimizer(prefix: str, what: str, default: str, source: Source) -> Argument:
    """Return the argument that selects the optimizer; parameters as in `optimizer_arguments`."""
    return Argument(
        f"{prefix}optimizer_type",
        Kind.TEXT,
        f"Optimizer {what}",
        default,
        source,
        choices=OPTIMIZERS,
    )


_OF_MODEL: Final = "of the model."
_OF_WIDE: Final = "of the wide part."
_OF_DEEP: Final = "of the deep part."

LINEAR_LEARNER: Final = ArgumentTable(
    (
        *TABULAR,
        *TRAINING,
        *optimizer_arguments(
            prefix="",
            what=_OF_MODEL,
            optimizer=_optimizer(prefix="", what=_OF_MODEL, default="ftrl", source=Source.OURS),
            learning_rate=0.1,
        ),
    ),
    (check_splits,),
)
WIDE_DEEP_LEARNER: Final = ArgumentTable(
    (
        *TABULAR,
        *TRAINING,
        Argument(
            "use_wide",
            Kind.FLAG,
            "Whether the model has a wide part.",
            default=True,
            source=Source.VERTEX,
        ),
        Argument(
            "embed_categories",
            Kind.FLAG,
            "Whether the deep part learns from categories.",
            default=True,
            source=Source.VERTEX,
        ),
        Argument(
            "hidden_units",
            Kind.INTEGERS,
            "Units of each hidden layer.",
            (30, 30, 30),
            Source.VERTEX,
        ),
        Argument(
            "dnn_dropout",
            Kind.NUMBER,
            "Dropout of hidden units.",
            0.0,
            Source.VERTEX,
            low=0,
            high=0.99,
        ),
        *optimizer_arguments(
            prefix="",
            what=_OF_WIDE,
            optimizer=_optimizer(prefix="", what=_OF_WIDE, default="adam", source=Source.VERTEX),
            learning_rate=0.01,
        ),
        *optimizer_arguments(
            prefix="dnn_",
            what=_OF_DEEP,
            optimizer=_optimizer(
                prefix="dnn_", what=_OF_DEEP, default="adam", source=Source.VERTEX
            ),
            learning_rate=0.001,
        ),
    ),
    (check_splits,),
)
