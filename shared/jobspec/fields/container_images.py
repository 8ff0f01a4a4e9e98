"""Container images by their names: whether one is a name at all, and which of Google's own stand for a runtime.

The services shipped prebuilt images for a Python package to run in. AI Platform's are gone, and Vertex AI's last ones
are past their end of availability (July 2026): a job that names one gets today's runtime of that framework.
"""

from __future__ import annotations

import re
from typing import Final

from shared.core.model.job import Substitution
from shared.jobspec.catalog.runtimes import RUNTIME_OF_FRAMEWORK
from shared.jobspec.reading.problems import Findings, Loc, given

IMAGE_CHARS_MAX: Final = 500
_IMAGE: Final = re.compile(
    r"(?:(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]{1,5})?/)?"  # registry
    r"[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*"  # repository
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
# gcr.io/cloud-ml-public/training/pytorch-gpu.1-9, us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest.
# Source: the services' lists of prebuilt containers for training.
_PREBUILT: Final = re.compile(
    r"(?:gcr\.io/(?:cloud-ml-public|cloud-aiplatform)|(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai)/training/"
    r"(?P<framework>[a-z]+(?:-learn)?)[0-9]?(?:-(?:cpu|gpu|tpu|xla))?\.[0-9]+-[0-9]+(?:\.py[0-9]+)?(?::[A-Za-z0-9_.-]+)?"
)


def check_image(image: str, at: Loc, found: Findings) -> None:
    if len(image) > IMAGE_CHARS_MAX or not _IMAGE.fullmatch(image):
        rule = "must be the name of a container image (registry/repository:tag)"
        found.add(at, f"{rule}, not {given(image)}", "us-docker.pkg.dev/my-project/training/trainer:1")


def prebuilt_version(image: str) -> str | None:
    """Today's runtime version for one of Google's prebuilt training images; None for any other image."""
    match = _PREBUILT.fullmatch(image)
    return RUNTIME_OF_FRAMEWORK.get(match["framework"]) if match else None


def instead_of(image: str, now: str, at: Loc, found: Findings) -> Substitution:
    why = "Google's prebuilt training images have ended; the package runs in today's runtime of their framework."
    return Substitution(found.path(at), image, now, why)
