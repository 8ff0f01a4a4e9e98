"""The linear and the deep model. Both return logits, or the standardized number of a regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import tf_keras

from ..keras_models.rows import CATEGORIES, NUMBERS, RowEncoder

layers = tf_keras.layers
EMBEDDING_MAX: Final = 32
"""Widest embedding of a column with categories."""


def create_inputs(encoder: RowEncoder) -> dict[str, Any]:
    """Return Keras inputs of the shapes that the encoder returns."""
    inputs = {}
    if encoder.metadata.numerical:
        inputs[NUMBERS] = tf_keras.Input((len(encoder.metadata.numerical),), name=NUMBERS)
    if encoder.metadata.categorical:
        inputs[CATEGORIES] = tf_keras.Input(
            (len(encoder.metadata.categorical),), dtype="int64", name=CATEGORIES
        )
    return inputs


def linear_model(encoder: RowEncoder, outputs: int) -> Any:
    """Return a model with one weight per number, per category and output."""
    inputs = create_inputs(encoder)
    terms = []
    if NUMBERS in inputs:
        terms.append(layers.Dense(outputs, name="linear_numbers")(inputs[NUMBERS]))
    for position, size in enumerate(encoder.sizes):
        weights = layers.Embedding(
            size, outputs, embeddings_initializer="zeros", name=f"linear_category_{position}"
        )
        terms.append(weights(inputs[CATEGORIES][:, position]))
    total = terms[0] if len(terms) == 1 else layers.Add()(terms)
    if NUMBERS not in inputs:
        # The layer of the numbers has the bias otherwise.
        total = layers.Dense(outputs, kernel_initializer="identity", trainable=True)(total)
    return tf_keras.Model(inputs, total, name="wide")


def deep_model(
    encoder: RowEncoder,
    outputs: int,
    hidden_units: Sequence[int],
    dropout: float,
    *,
    embeds_categories: bool,
) -> Any:
    """Return a model with hidden layers over numbers and embedded categories."""
    inputs = create_inputs(encoder)
    terms = [inputs[NUMBERS]] if NUMBERS in inputs else []
    if embeds_categories or not terms:  # without numbers there is nothing else to learn from
        for position, size in enumerate(encoder.sizes):
            embedding = layers.Embedding(
                size, embedding_width(size), name=f"deep_category_{position}"
            )
            terms.append(embedding(inputs[CATEGORIES][:, position]))
    hidden = terms[0] if len(terms) == 1 else layers.Concatenate()(terms)
    for units in hidden_units:
        hidden = layers.Dense(units, activation="relu")(hidden)
        if dropout:
            hidden = layers.Dropout(dropout)(hidden)
    return tf_keras.Model(inputs, layers.Dense(outputs, name="deep_output")(hidden), name="deep")


def embedding_width(categories: int) -> int:
    """Return the width of an embedding: the fourth root of the number of categories, doubled, at
    least 2.
    """
    return min(EMBEDDING_MAX, max(2, math.ceil(2 * math.sqrt(math.sqrt(categories)))))
