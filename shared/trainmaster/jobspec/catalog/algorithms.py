"""The built-in algorithms of AI Platform Training: their images, and what runs in their place.

The images are gone. The package `trainmaster.algorithms` has the programs. Source of images and
machines: the pages of AI Platform Training, and jobs that ran there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.catalog.runtimes import CONTAINER_HOST, Runtime

_IMAGE: Final = re.compile(
    r"(?:(?:us|eu|asia)\.)?gcr\.io/cloud-ml-algos/(?P<name>[^:@]+)(?:[:@].*)?"
)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A built-in algorithm."""

    name: str
    """Value of `trainmaster.algorithm`, and module of the package `algorithms`."""
    framework: str
    """As `builtInAlgorithmOutput.framework` names it."""
    runtime: str
    """Runtime version that it runs in."""
    images: tuple[str, ...]
    """Names of its images, below gcr.io/cloud-ml-algos/."""
    is_distributed: bool = False
    """Whether it has workers; else it runs on the master alone."""
    gpus_max: int = 1
    """GPUs that it uses per VM."""

    @property
    def module(self) -> str:
        return f"algorithms.{self.name}"


ALGORITHMS: Final = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "boosted_trees",
            framework="XGBOOST",
            runtime="xgboost-3.2",
            images=("boosted_trees",),
            gpus_max=0,
        ),
        Algorithm(
            "xgboost_dist",
            framework="XGBOOST",
            runtime="xgboost-3.2",
            images=("xgboost_dist",),
            is_distributed=True,
        ),
        Algorithm(
            "linear_learner",
            framework="TENSORFLOW",
            runtime="2.21",
            images=("linear_learner_cpu", "linear_learner_gpu"),
        ),
        Algorithm(
            "wide_deep_learner",
            framework="TENSORFLOW",
            runtime="2.21",
            images=("wide_deep_learner_cpu", "wide_deep_learner_gpu"),
        ),
        Algorithm("tab_net", framework="TENSORFLOW", runtime="2.21", images=("tab_net",)),
    )
}
ALGORITHM_OF_IMAGE: Final = {
    image: algorithm for algorithm in ALGORITHMS.values() for image in algorithm.images
}
"""Name of an image → its algorithm."""

XGBOOST_ON_GPU: Final = Runtime(
    "xgboost",
    image=CONTAINER_HOST.image,
    python="3.12",
    packages=("xgboost==3.2.*", "scikit-learn==1.9.*"),
)
"""Runtime of `xgboost_dist` on VMs with GPUs: the image has a driver, which this build of XGBoost
uses.
"""

_MODEL_GARDEN: Final = (
    "train it with TensorFlow Model Garden (package tf-models-official), in a package or a"
    " container of your own"
)
NOT_AVAILABLE: Final = {
    "image_classification": _MODEL_GARDEN,
    "image_object_detection": _MODEL_GARDEN,
    "ncf": _MODEL_GARDEN,
    "bert": _MODEL_GARDEN,
}
"""Algorithms of AI Platform Training that Trainmaster does not have → where to go."""


def image_algorithm(image: str) -> str | None:
    """Return the name of an image below gcr.io/cloud-ml-algos; None for any other image."""
    match = _IMAGE.fullmatch(image)
    return match["name"] if match else None
