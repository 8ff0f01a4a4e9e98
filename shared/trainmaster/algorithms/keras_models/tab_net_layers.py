"""Layers of TabNet.

Source: Arik and Pfister, "TabNet: Attentive Interpretable Tabular Learning" (arXiv 1908.07442).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

layers = tf_keras.layers
EPSILON = 1e-5
"""Keeps divisions by a deviation of 0 finite."""
POWER_MIN = 0.01
POWER_MAX = 1.99
"""Limits of the learnt power of `YeoJohnson`, which must be greater than 0 and less than 2."""
RESIDUAL_SCALE = 0.5**0.5
"""Keeps the variance of a sum of two layers. Source: the paper, section "Feature processing"."""


def sparsemax(logits: Any) -> Any:
    """Project each row onto the probability simplex: the result sums to 1 and has exact zeros.

    Source: Martins and Astudillo, "From Softmax to Sparsemax" (arXiv 1602.02068), algorithm 1.
    """
    # Shifting a row changes nothing, and keeps large logits from losing digits.
    shifted = logits - tf.reduce_max(logits, axis=-1, keepdims=True)
    descending = tf.sort(shifted, axis=-1, direction="DESCENDING")
    sums = tf.cumsum(descending, axis=-1)
    ranks = tf.range(1, tf.shape(logits)[-1] + 1, dtype=logits.dtype)
    support = tf.reduce_sum(
        tf.cast(1 + ranks * descending > sums, tf.int32), axis=-1, keepdims=True
    )
    supported_sum = tf.gather(sums, support - 1, axis=-1, batch_dims=1)
    threshold = (supported_sum - 1) / tf.cast(support, logits.dtype)
    return tf.maximum(shifted - threshold, 0)


class GhostBatchNormalization(tf_keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Batch normalization over parts of a batch, `ghost_batches` of equal size. Source: Hoffer et
    al. (arXiv 1705.08741).

    `momentum`: share of a moving average that stays after each batch; outside training, the
    averages are used.
    """

    def __init__(self, ghost_batches: int, momentum: float) -> None:
        super().__init__()
        self._parts = ghost_batches
        self._momentum = momentum

    def build(self, shape: Any) -> None:
        width = shape[-1]
        self.scale = self.add_weight("scale", (width,), initializer="ones")
        self.offset = self.add_weight("offset", (width,), initializer="zeros")
        self.mean = self.add_weight("mean", (width,), initializer="zeros", trainable=False)
        self.variance = self.add_weight("variance", (width,), initializer="ones", trainable=False)

    def call(self, values: Any, training: bool = False) -> Any:  # noqa: FBT001, FBT002 - of Keras
        if not training:
            normalized = (values - self.mean) * tf.math.rsqrt(self.variance + EPSILON)
            return normalized * self.scale + self.offset
        width = values.shape[-1]
        parts = tf.reshape(values, [self._parts, -1, width])
        mean, variance = tf.nn.moments(parts, axes=[1], keepdims=True)
        self._update_average(self.mean, tf.reduce_mean(mean, axis=[0, 1]))
        self._update_average(self.variance, tf.reduce_mean(variance, axis=[0, 1]))
        normalized = tf.reshape(
            (parts - mean) * tf.math.rsqrt(variance + EPSILON), tf.shape(values)
        )
        return tf.ensure_shape(normalized, values.shape) * self.scale + self.offset

    def _update_average(self, statistic: Any, observed: Any) -> None:
        statistic.assign(statistic * self._momentum + observed * (1 - self._momentum))


class GatedLayer(tf_keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """A dense layer, normalized, with gated linear units: the sigmoid of one half of its output
    scales the other half.

    `dense` may belong to several gated layers.
    """

    def __init__(self, dense: Any, ghost_batches: int, momentum: float) -> None:
        super().__init__()
        self._dense = dense
        self._normalization = GhostBatchNormalization(ghost_batches, momentum)

    def call(self, values: Any, training: bool = False) -> Any:  # noqa: FBT001, FBT002 - of Keras
        normalized = self._normalization(self._dense(values), training=training)
        linear, gate = tf.split(normalized, 2, axis=-1)
        return linear * tf.sigmoid(gate)


class FeatureTransformer(tf_keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Gated layers with residual connections: first those with shared weights, then the step's own.

    `shared`: dense layers that all steps have in common. `own_count`, `width`: number and width of
    the step's own. The others are those of GhostBatchNormalization.
    """

    def __init__(
        self, shared: list[Any], own_count: int, width: int, ghost_batches: int, momentum: float
    ) -> None:
        super().__init__()
        own = [layers.Dense(2 * width, use_bias=False) for _ in range(own_count)]
        self._layers = [GatedLayer(dense, ghost_batches, momentum) for dense in (*shared, *own)]

    def call(self, values: Any, training: bool = False) -> Any:  # noqa: FBT001, FBT002 - of Keras
        result = self._layers[0](values, training=training)
        for layer in self._layers[1:]:
            result = (result + layer(result, training=training)) * RESIDUAL_SCALE
        return result


class YeoJohnson(tf_keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """The power transform of Yeo and Johnson (2000), with a learnt power per column, which begins
    as the identity.
    """

    def build(self, shape: Any) -> None:
        self.power = self.add_weight("power", (shape[-1],), initializer="ones")

    def call(self, values: Any) -> Any:
        # Both branches divide by the power, or by its distance from 2.
        power = tf.clip_by_value(self.power, POWER_MIN, POWER_MAX)
        positive = (tf.pow(tf.maximum(values, 0) + 1, power) - 1) / power
        negative = -(tf.pow(tf.maximum(-values, 0) + 1, 2 - power) - 1) / (2 - power)
        return tf.where(values >= 0, positive, negative)
