"""Packaging of the trainer: `python examples/package.py tpu_jax OUT_DIR` builds its archive."""

from setuptools import setup

# Cloud TPU's software versions include no framework. pip installs the newest JAX for their Python and its TPU library.
setup(
    name="tpu-jax-trainer",
    version="0.1",
    description="Handwritten digits, trained by JAX on all chips of a Cloud TPU slice",
    packages=["trainer"],
    python_requires=">=3.10",
    install_requires=["gcsfs", "jax[tpu]", "scikit-learn"],
)
