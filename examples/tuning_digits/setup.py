"""Packaging of the trainer: `python examples/package.py tuning_digits OUT_DIR` builds its archive."""

from setuptools import setup

setup(
    name="tuning-digits-trainer",
    version="0.1",
    description="Handwritten digits, classified by a network with tuned hyperparameters",
    packages=["trainer"],
    python_requires=">=3.11",
    install_requires=["cloudml-hypertune", "gcsfs", "joblib", "scikit-learn"],
)
