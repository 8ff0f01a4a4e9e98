"""Packaging of the trainer: `python examples/package.py pytorch_ddp OUT_DIR` builds its archive."""

from setuptools import setup

# torch comes with the runtime version: its right build depends on the machine.
setup(
    name="pytorch-ddp-trainer",
    version="0.1",
    description="Handwritten digits, trained by PyTorch DistributedDataParallel",
    packages=["trainer"],
    python_requires=">=3.11",
    install_requires=["gcsfs", "scikit-learn"],
)
