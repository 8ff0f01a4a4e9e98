"""From arguments to optimizers of Keras."""

from __future__ import annotations

from typing import Any

import tf_keras

from ..arguments.argument import Values


def create_optimizer(values: Values, prefix: str = "") -> Any:
    """Return the optimizer of the arguments with this prefix: `dnn_` for the deep part of a model
    that also has a wide one.

    The arguments are checked: what is neither FTRL nor Adam is SGD. Arguments of other optimizers
    have no effect.
    """
    rate = values[f"{prefix}learning_rate"]
    match values[f"{prefix}optimizer_type"]:
        case "ftrl":
            return tf_keras.optimizers.Ftrl(
                rate,
                l1_regularization_strength=values[f"{prefix}l1_regularization_strength"],
                l2_regularization_strength=values[f"{prefix}l2_regularization_strength"],
                l2_shrinkage_regularization_strength=values[
                    f"{prefix}l2_shrinkage_regularization_strength"
                ],
            )
        case "adam":
            return tf_keras.optimizers.Adam(
                rate, values[f"{prefix}beta_1"], values[f"{prefix}beta_2"]
            )
        case _:
            return tf_keras.optimizers.SGD(rate)
