"""Packaging of the trainer: `python examples/package.py xgboost_digits OUT_DIR` builds its archive."""

from setuptools import setup

# xgboost comes with the runtime version.
setup(
    name="xgboost-digits-trainer",
    version="0.1",
    description="Handwritten digits, classified by boosted trees, on one machine or several",
    packages=["trainer"],
    python_requires=">=3.11",
    install_requires=["gcsfs", "scikit-learn"],
)
