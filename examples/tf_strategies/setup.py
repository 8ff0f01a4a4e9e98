"""Packages the trainers; `python examples/package.py tf_strategies OUT_DIR` builds the archive that job files name."""

from setuptools import setup

# TensorFlow and tf_keras come with the runtime version; asking for them here would install them again on every VM.
setup(
    name="tf-strategies-trainer",
    version="0.1",
    description="Handwritten digits under TensorFlow's distribution strategies, a module each",
    packages=["trainer"],
    python_requires=">=3.9",
    install_requires=["scikit-learn"],
)
