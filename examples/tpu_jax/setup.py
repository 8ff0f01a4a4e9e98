"""Packages the trainer; `python examples/package.py tpu_jax OUT_DIR` builds the archive that job.yaml names."""

from setuptools import setup

# Cloud TPU's software versions bring no framework: pip takes the newest JAX for their Python, with its TPU library.
setup(
    name="tpu-jax-trainer",
    version="0.1",
    description="Handwritten digits, trained by JAX on all chips of a Cloud TPU slice",
    packages=["trainer"],
    python_requires=">=3.10",
    install_requires=["google-cloud-storage", "jax[tpu]", "scikit-learn"],
)
