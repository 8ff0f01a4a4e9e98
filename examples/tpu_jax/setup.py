"""Packaging of the trainer: `python setup.py sdist` builds its archive, and so does `trainmaster
submit`.
"""

from setuptools import setup

# Cloud TPU's software versions include no framework. pip installs the newest JAX for their Python
# and its TPU library.
setup(
    name="tpu-jax-trainer",
    version="0.1",
    description="Handwritten digits, trained by JAX on all chips of a Cloud TPU slice",
    packages=["trainer"],
    python_requires=">=3.10",
    install_requires=["gcsfs", "jax[tpu]", "scikit-learn"],
)
