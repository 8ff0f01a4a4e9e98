"""The runtimes that `runtimeVersion` selects: the current ones, and those that replace past ones.

*The service* is AI Platform Training, which Trainmaster succeeds. It supported each version for
twelve months; its last was 2.11 with Python 3.7. A job that names a past version gets the current
TensorFlow, and `describe` shows the substitution.

Images are Google's current ones. Source: "Choose an image", Deep Learning VM documentation
(2026-04). All TensorFlow families there are past their end, so TensorFlow is installed on the CUDA
base image. The CUDA images boot on machines with and without GPUs, so one image per runtime is
enough. The images of Ubuntu 22.04 have its Python 3.10, which is too old for the packages below;
those of Ubuntu 24.04 have Python 3.12 (decision 40).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.catalog.service_packages import (
    SERVICE_PACKAGES_ON_TPU,
    with_service_packages,
)

DEEP_LEARNING_IMAGES: Final = "projects/deeplearning-platform-release/global/images/"
_DEEP_LEARNING: Final = f"{DEEP_LEARNING_IMAGES}family"
_DEBIAN: Final = "projects/debian-cloud/global/images/family"
_CUDA: Final = f"{_DEEP_LEARNING}/common-cu129-ubuntu-2404-nvidia-580"
_PYTORCH: Final = f"{_DEEP_LEARNING}/pytorch-2-9-cu129-ubuntu-2404-nvidia-580"


@dataclass(frozen=True, slots=True)
class Runtime:
    """An image, and the packages that make it a runtime."""

    name: str
    """Name of the runtime in plans."""
    image: str
    """Boot image."""
    python: str
    """Python of the boot image."""
    packages: tuple[str, ...]
    """Packages that pip adds to the image."""
    gpu_packages: tuple[str, ...] = ()
    """Packages that pip adds on VMs with GPUs instead; empty: the same."""
    tpu_packages: tuple[str, ...] = ()
    """Packages that pip adds on a TPU VM instead, whose Python is TPU_PYTHON; empty: not for TPUs.
    """


# `tf.summary` needs TensorBoard, which TensorFlow no longer installs.
_WITH_TENSORFLOW: Final = ("tf_keras==2.21.*", "tensorboard==2.21.*")
_PYTORCH_ON_TPU: Final = ("torch==2.9.*", "torch_xla[tpu]==2.9.*", *SERVICE_PACKAGES_ON_TPU)

# PyTorch's three packages are built for each other, and the image has all three. A runtime names
# all of them, because another torch alone would break the image's torchvision and torchaudio at
# their import.
RUNTIMES: Final = {
    "2.21": Runtime(
        "tensorflow",
        image=_CUDA,
        python="3.12",
        packages=with_service_packages("tensorflow==2.21.*", *_WITH_TENSORFLOW),
        # 2.5 GB more: the CUDA libraries.
        gpu_packages=with_service_packages("tensorflow[and-cuda]==2.21.*", *_WITH_TENSORFLOW),
        # The newest build for TPUs. The agent lets nothing replace it, also if tf_keras requires
        # `tensorflow`.
        tpu_packages=("tensorflow-tpu==2.20.*", "tf_keras==2.20.*", *SERVICE_PACKAGES_ON_TPU),
    ),
    # The versions of the image: only the service's packages are installed.
    "pytorch-2.9": Runtime(
        "pytorch",
        image=_PYTORCH,
        python="3.12",
        packages=with_service_packages("torch==2.9.*", "torchvision==0.24.*", "torchaudio==2.9.*"),
        tpu_packages=_PYTORCH_ON_TPU,
    ),
    # The newest versions. torchaudio has no release after 2.11, which runs with every later torch.
    "pytorch-2.13": Runtime(
        "pytorch",
        image=_PYTORCH,
        python="3.12",
        packages=with_service_packages(
            "torch==2.13.*", "torchvision==0.28.*", "torchaudio==2.11.*"
        ),
        tpu_packages=_PYTORCH_ON_TPU,
    ),
    # For CPUs, like its prebuilt images. On the local stack it runs in the environment of
    # scikit-learn: same image.
    "xgboost-3.2": Runtime(
        "xgboost",
        image=f"{_DEBIAN}/debian-12",
        python="3.11",
        packages=with_service_packages("xgboost-cpu==3.2.*", "scikit-learn==1.9.*"),
    ),
    "scikit-learn-1.9": Runtime(
        "scikit-learn",
        image=f"{_DEBIAN}/debian-12",
        python="3.11",
        packages=with_service_packages("scikit-learn==1.9.*"),
    ),
}
"""Value of `runtimeVersion` → the runtime."""
RUNTIME_DEFAULT: Final = "2.21"
"""Runtime of a job that names none."""
TPU_PYTHON: Final = "3.10"
"""Python of Cloud TPU's software versions, which are Ubuntu 22.04.

Source: "TPU software versions".
"""

CONTAINER_HOST: Final = Runtime("container", image=_CUDA, python="3.12", packages=())
"""Host of containers: the image has NVIDIA's driver and container toolkit.

The agent adds a container engine.
"""
OWN_IMAGE: Final = "own-image"
"""Runtime name of a job with its own boot image and no runtimeVersion: nothing is installed."""

RUNTIME_OF_FRAMEWORK: Final = {
    "tf": "2.21",
    "pytorch": "pytorch-2.9",
    "scikit-learn": "scikit-learn-1.9",
    "sklearn": "scikit-learn-1.9",
    "xgboost": "xgboost-3.2",
}
"""Framework in the name of a prebuilt training image → runtime version."""


@dataclass(frozen=True, slots=True)
class PastRuntime:
    """A runtime version of the service.

    Source: its release notes of March 2020 and its list of versions.
    """

    replaced_by: str
    has_chief: bool
    """Whether TF_CONFIG names the primary `chief`; in older versions it is `master`."""
    pythons: tuple[str, ...]
    """Python versions that it had."""


PAST_RUNTIMES: Final = {
    **{
        f"1.{minor}": PastRuntime("2.21", has_chief=False, pythons=("3.5", "2.7"))
        for minor in range(15)
    },
    "1.15": PastRuntime("2.21", has_chief=False, pythons=("3.7", "2.7")),
    **{
        f"2.{minor}": PastRuntime("2.21", has_chief=True, pythons=("3.7",))
        for minor in range(1, 12)
    },
}

PAST_PYTHONS: Final = ("3.7",)
"""Python versions that a job may also request with a current runtime or without a runtimeVersion.
"""
