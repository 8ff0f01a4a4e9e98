"""Valid job documents from which tests start."""

from __future__ import annotations

from typing import Final

MINIMAL: Final[dict[str, object]] = {
    "region": "us-central1",
    "packageUris": ["gs://my-bucket/packages/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
}

CUSTOM: Final[dict[str, object]] = {**MINIMAL, "scaleTier": "CUSTOM", "masterType": "n1-standard-8"}


def job(**training: object) -> dict[str, object]:
    """Return a valid job on the default tier with these fields of the training input changed."""
    return {"jobId": "digits_1", "trainingInput": {**MINIMAL, **training}}


def custom(**training: object) -> dict[str, object]:
    """Return a valid job on the tier CUSTOM with these fields of the training input changed."""
    return {"jobId": "digits_1", "trainingInput": {**CUSTOM, **training}}


def gpus(gpu_type: str, count: object) -> dict[str, object]:
    """Return the field of a task type that attaches `count` GPUs of a type to each machine."""
    return {"acceleratorConfig": {"type": gpu_type, "count": count}}
