"""The JAX trainers on scikit-learn's handwritten digits: over all chips of a Cloud TPU slice, on
one axis or two.
"""
