"""Packaging of the trainer: `python setup.py sdist` builds its archive, and so does `trainmaster
submit`.
"""

from setuptools import setup

# TensorFlow and tf_keras come with the runtime version. Requirements here would install them again
# on every VM.
setup(
    name="digits-trainer",
    version="0.1",
    description="Handwritten digits, trained by one chief and any number of workers",
    packages=["trainer"],
    python_requires=">=3.9",
    install_requires=["scikit-learn"],
)
