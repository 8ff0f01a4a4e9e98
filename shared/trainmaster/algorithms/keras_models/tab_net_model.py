"""The TabNet encoder: decision steps, each of which selects columns by a sparse mask.

Source: arXiv 1908.07442, figure 4, and the sizes of the argument names of AI Platform Training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras

from ..keras_models.rows import CATEGORIES, NUMBERS, RowEncoder
from ..keras_models.tab_net_layers import (
    FeatureTransformer,
    GhostBatchNormalization,
    YeoJohnson,
    sparsemax,
)

layers = tf_keras.layers
ENTROPY_EPSILON = 1e-5
"""Keeps the logarithm of a mask's zeros finite."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape of a TabNet model."""

    width: int
    """feature_dim: width of the feature transformers."""
    decision_width: int
    """Part of it that goes to the decision; the rest goes to the next mask."""
    steps: int
    """Number of transformers: the first makes the first mask, each other one adds a decision."""
    relaxation: float
    """Limit of the sum of a column's masks over the steps; 1: only one step may select it fully."""
    shared_layers: int
    """Layers of each transformer whose weights all steps share."""
    own_layers: int
    """Layers of each transformer with weights of their own."""
    sparsity_loss_weight: float
    ghost_batches: int
    """Parts of a batch that are normalized separately."""
    momentum: float
    """Share of a moving average of batch normalization that stays after each batch."""
    large_category_dim: int
    large_category_thresh: int
    """Columns with more categories have embeddings of width `large_category_dim`, others of width
    1.
    """
    yeo_johnson: bool
    """Whether numbers pass a learnt power transform first."""


class TabNet(tf_keras.Model):  # type: ignore[misc]  # Keras has no types
    """Maps the encoder's inputs to logits [rows, outputs] and aggregated masks [rows, columns].

    Training uses the logits only; a mask row sums the steps' masks, weighted by what each step
    contributed.
    """

    def __init__(self, encoder: RowEncoder, outputs: int, sizes: Sizes) -> None:
        super().__init__()
        self._sizes = sizes
        self._embeddings = []
        for category_count in encoder.sizes:
            is_large = category_count > sizes.large_category_thresh
            width = sizes.large_category_dim if is_large else 1
            self._embeddings.append(layers.Embedding(category_count, width))
        # A number has width 1.
        self._widths = [1] * len(encoder.metadata.numerical)
        self._widths += [layer.output_dim for layer in self._embeddings]
        self._power = YeoJohnson() if sizes.yeo_johnson and encoder.metadata.numerical else None
        ghost = (sizes.ghost_batches, sizes.momentum)
        self._normalization = GhostBatchNormalization(1, sizes.momentum)
        shared = [layers.Dense(2 * sizes.width, use_bias=False) for _ in range(sizes.shared_layers)]
        self._transformers = [
            FeatureTransformer(shared, sizes.own_layers, sizes.width, *ghost)
            for _ in range(sizes.steps)
        ]
        total = sum(self._widths)
        self._mask_layers = [layers.Dense(total, use_bias=False) for _ in range(sizes.steps - 1)]
        self._mask_normalizations = [
            GhostBatchNormalization(*ghost) for _ in range(sizes.steps - 1)
        ]
        self._output = layers.Dense(outputs, use_bias=True)

    def call(
        self,
        inputs: dict[str, Any],
        training: bool = False,  # noqa: FBT001, FBT002 - Keras' signature
    ) -> Any:
        """Return logits, and outside training also the masks.

        `prior`: how much each column may still be selected; a mask uses it up, but for the
        relaxation. `entropy`: how far the masks are from sparse ones, which a loss punishes.
        """
        sizes = self._sizes
        features = self._normalization(self._columns(inputs), training=training)
        masked = features
        prior = tf.ones_like(features)
        decided = 0.0
        masks = tf.zeros_like(features)
        entropy = 0.0
        mask = tf.ones_like(features) / features.shape[-1]
        for step, transformer in enumerate(self._transformers):
            transformed = transformer(masked, training=training)
            if step > 0:
                decision = tf.nn.relu(transformed[:, : sizes.decision_width])
                decided += decision
                masks += mask * tf.reduce_sum(decision, axis=1, keepdims=True) / (sizes.steps - 1)
            if step == sizes.steps - 1:
                break
            logits = self._mask_layers[step](transformed[:, sizes.decision_width :])
            mask = sparsemax(self._mask_normalizations[step](logits, training=training) * prior)
            prior *= sizes.relaxation - mask
            row_entropies = tf.reduce_sum(-mask * tf.math.log(mask + ENTROPY_EPSILON), axis=1)
            entropy += tf.reduce_mean(row_entropies)
            masked = mask * features
        if training:
            self.add_loss(sizes.sparsity_loss_weight * entropy / (sizes.steps - 1))
            return self._output(decided)
        return self._output(decided), self._per_column(masks)

    def _per_column(self, masks: Any) -> Any:
        """Return one value per column: the sum over the width of its embedding."""
        parts = tf.split(masks, self._widths, axis=1)
        return tf.stack([tf.reduce_sum(part, axis=1) for part in parts], axis=1)

    def _columns(self, inputs: dict[str, Any]) -> Any:
        """Return all columns side by side, [rows, sum of widths]: numbers, then embedded
        categories.
        """
        parts = []
        if NUMBERS in inputs:
            numbers = tf.cast(inputs[NUMBERS], tf.float32)
            parts.append(self._power(numbers) if self._power is not None else numbers)
        for position, embedding in enumerate(self._embeddings):
            parts.append(embedding(inputs[CATEGORIES][:, position]))
        return tf.concat(parts, axis=1)
