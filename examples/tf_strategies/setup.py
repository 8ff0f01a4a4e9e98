"""Packaging of the trainer: `python examples/package.py tf_strategies OUT_DIR` builds its archive."""

from setuptools import setup

# TensorFlow and tf_keras come with the runtime version. Requirements here would install them again on every VM.
setup(
    name="tf-strategies-trainer",
    version="0.1",
    description="Handwritten digits, one module for each of TensorFlow's distribution strategies",
    packages=["trainer"],
    python_requires=">=3.9",
    install_requires=["scikit-learn"],
)
