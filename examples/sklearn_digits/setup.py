"""Packaging of the trainer: `python examples/package.py sklearn_digits OUT_DIR` builds its archive."""

from setuptools import setup

setup(
    name="sklearn-digits-trainer",
    version="0.1",
    description="Handwritten digits, classified by a support vector machine",
    packages=["trainer"],
    python_requires=">=3.11",
    install_requires=["gcsfs", "joblib", "scikit-learn"],
)
