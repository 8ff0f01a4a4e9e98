"""What `runtimeVersion` and `pythonVersion` mean today: a table of the runtimes there are, and one of those there were.

The service supported each runtime version for twelve months; its last was 2.11 with Python 3.7. A job that names one of
its last versions gets today's TensorFlow, and `describe` says so.

Images are Google's current ones. Source: "Choose an image", Deep Learning VM documentation (2026-04): all TensorFlow
families there are past their end, so TensorFlow runs on the CUDA base image, plus `packages`. The CUDA images boot on
machines with and without GPU; so a runtime needs one image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DEEP_LEARNING: Final = "projects/deeplearning-platform-release/global/images/family"
_DEBIAN: Final = "projects/debian-cloud/global/images/family"
_CUDA: Final = f"{_DEEP_LEARNING}/common-cu129-ubuntu-2204-nvidia-580"


@dataclass(frozen=True, slots=True)
class Runtime:
    """`packages`: what pip adds to the image so that the runtime is what its version says.

    `tpu_packages`: what it adds on a TPU VM instead, whose Python is `TPU_PYTHON`; none: not for TPUs.
    """

    name: str
    image: str
    python: str
    packages: tuple[str, ...]
    tpu_packages: tuple[str, ...] = ()


RUNTIMES: Final = {
    # runtimeVersion: name, image, Python, packages, packages on a TPU
    "2.21": Runtime(
        "tensorflow",
        _CUDA,
        "3.12",
        # The service's runtimes had these beside TensorFlow. Source: its runtime version list. Without TensorBoard,
        # which TensorFlow no longer brings, `tf.summary` cannot write.
        ("tensorflow[and-cuda]==2.21.*", "tf_keras==2.21.*", "tensorboard==2.21.*", "scikit-learn==1.9.*"),
        # The newest build for TPUs; tf_keras would bring the one without.
        ("tensorflow-tpu==2.20.*",),
    ),
    "pytorch-2.13": Runtime(
        "pytorch",
        f"{_DEEP_LEARNING}/pytorch-2-9-cu129-ubuntu-2204-nvidia-580",
        "3.12",
        ("torch==2.13.*",),
        ("torch==2.9.*", "torch_xla[tpu]==2.9.*"),
    ),
    # For CPUs, as its prebuilt images were. On the local stack the next row's environment is that of their image.
    "xgboost-3.2": Runtime(
        "xgboost",
        f"{_DEBIAN}/debian-12",
        "3.11",
        ("xgboost-cpu==3.2.*", "scikit-learn==1.9.*"),
    ),
    "scikit-learn-1.9": Runtime(
        "scikit-learn",
        f"{_DEBIAN}/debian-12",
        "3.11",
        ("scikit-learn==1.9.*",),
    ),
}
RUNTIME_DEFAULT: Final = "2.21"
TPU_PYTHON: Final = "3.10"
"""Of Cloud TPU's software versions, which are Ubuntu 22.04. Source: "TPU software versions"."""

CONTAINER_HOST: Final = Runtime("container", _CUDA, "3.12", ())
"""Where containers run: it has an engine, and NVIDIA's toolkit for it."""
OWN_IMAGE: Final = "own-image"
"""The runtime's name where the job brings its boot image and asks for no runtimeVersion: nothing is added to it."""

RUNTIME_OF_FRAMEWORK: Final = {
    "tf": "2.21",
    "pytorch": "pytorch-2.13",
    "scikit-learn": "scikit-learn-1.9",
    "sklearn": "scikit-learn-1.9",
    "xgboost": "xgboost-3.2",
}
"""By the word in the names of Google's prebuilt training images."""


@dataclass(frozen=True, slots=True)
class PastRuntime:
    """A version of the service's. `has_chief`: TF_CONFIG says `chief` where before it said `master`.

    `pythons`: those it came with. Source of both: the service's release notes of March 2020 and its list of versions.
    """

    replaced_by: str
    has_chief: bool
    pythons: tuple[str, ...]


PAST_RUNTIMES: Final = {
    "1.15": PastRuntime("2.21", has_chief=False, pythons=("3.7", "2.7")),
    **{f"2.{minor}": PastRuntime("2.21", has_chief=True, pythons=("3.7",)) for minor in range(1, 12)},
}

PAST_PYTHONS: Final = ("3.7",)
"""What a job without a runtimeVersion, or with one of today's, may still ask for by habit."""
