"""Packages the trainer; `python examples/package.py tuning_digits OUT_DIR` builds the archive that job.yaml names."""

from setuptools import setup

setup(
    name="tuning-digits-trainer",
    version="0.1",
    description="Handwritten digits, classified by a network whose hyperparameters are searched",
    packages=["trainer"],
    python_requires=">=3.11",
    install_requires=["cloudml-hypertune", "google-cloud-storage", "joblib", "scikit-learn"],
)
