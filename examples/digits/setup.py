"""Packaging of the trainer: `python examples/package.py digits OUT_DIR` builds its archive."""

from setuptools import setup

# TensorFlow and tf_keras come with the runtime version. Requirements here would install them again on every VM.
setup(
    name="digits-trainer",
    version="0.1",
    description="Handwritten digits, trained by one chief and any number of workers",
    packages=["trainer"],
    python_requires=">=3.9",
    install_requires=["scikit-learn"],
)
