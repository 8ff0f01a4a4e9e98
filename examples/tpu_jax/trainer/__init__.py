"""The JAX trainer: data parallel over all chips of a Cloud TPU slice, on scikit-learn's handwritten digits."""
