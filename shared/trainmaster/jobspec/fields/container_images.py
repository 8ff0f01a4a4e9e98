"""The names of container images: their form, and which of Google's prebuilt images have a runtime.

AI Platform Training and Vertex AI, the services, offered prebuilt images in which a Python package
runs. Those of AI Platform are deleted, and the last ones of Vertex AI are past their end of
availability (July 2026): a job that names one gets the current runtime of the same framework.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.jobspec.catalog.algorithms import image_algorithm
from trainmaster.jobspec.catalog.runtimes import RUNTIME_OF_FRAMEWORK
from trainmaster.jobspec.problems import FieldPath, Problems, quoted

IMAGE_CHARS_MAX: Final = 500
"""Characters of an image's name."""
KERAS_3_SINCE: Final = (2, 16)
"""The first version of TensorFlow with Keras 3. Source: its release notes."""
_IMAGE: Final = re.compile(
    r"(?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?/)?"  # registry
    r"[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*"  # repository
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
# gcr.io/cloud-ml-public/training/pytorch-gpu.1-9,
# us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest. Source: the services' lists of
# prebuilt containers for training.
_PREBUILT: Final = re.compile(
    r"(?:gcr\.io/(?:cloud-ml-public|cloud-aiplatform)"
    r"|(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai)/training/"
    r"(?P<framework>[a-z]+(?:-learn)?)[0-9]?(?:-(?:cpu|gpu|tpu|xla))?"
    r"\.(?P<major>[0-9]+)-(?P<minor>[0-9]+)(?:\.py[0-9]+)?"
    r"(?::[A-Za-z0-9_.-]+)?"  # tag
)

_REDUCTION_SERVER: Final = re.compile(
    r"(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai-restricted/training/reductionserver"
)


def check_image(image: str, path: FieldPath, problems: Problems) -> None:
    """Check the name of an image that a job runs as a container."""
    if _REDUCTION_SERVER.match(image):
        problem = (
            "is Vertex AI's reduction server, which runs only there; NCCL reduces gradients"
            " without it"
        )
        problems.add_text(
            path, problem, advice="leave the pool out (reduction_server_replica_count)"
        )
        return
    if image_algorithm(image) is not None:
        problem = (
            "is a built-in algorithm of AI Platform Training, which only trainingInput.masterConfig"
            " may name"
        )
        problems.add_text(path, problem, advice='trainmaster: {algorithm: "boosted_trees"}')
        return
    if len(image) > IMAGE_CHARS_MAX or not _IMAGE.fullmatch(image):
        rule = "must be the name of a container image (registry/repository:tag)"
        problems.add(
            path,
            f"{rule}, not {quoted(image)}",
            example="us-docker.pkg.dev/my-project/training/trainer:1",
        )


def runtime_of_prebuilt_image(image: str) -> str | None:
    """Return the runtime version that replaces a prebuilt image; None for any other image."""
    match = _PREBUILT.fullmatch(image)
    return RUNTIME_OF_FRAMEWORK.get(match["framework"]) if match else None


def had_keras_2(image: str) -> bool:
    """Return whether the image is a prebuilt one that had TensorFlow with Keras 2."""
    match = _PREBUILT.fullmatch(image)
    if match is None or match["framework"] != "tf":
        return False
    version = (int(match["major"]), int(match["minor"]))
    return version < KERAS_3_SINCE


def note_prebuilt_image(image: str, runtime: str, path: FieldPath, problems: Problems) -> None:
    """Note that a prebuilt image is replaced by a runtime."""
    reason = (
        "Google's prebuilt training images have ended; the package runs in the current runtime of"
        " their framework."
    )
    problems.substitute(path, image, runtime, reason)
