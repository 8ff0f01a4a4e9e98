"""Job bodies the tests start from."""

from __future__ import annotations

from typing import Final

MINIMAL: Final[dict[str, object]] = {
    "region": "us-central1",
    "packageUris": ["gs://my-bucket/packages/trainer-0.1.tar.gz"],
    "pythonModule": "trainer.task",
}

CUSTOM: Final[dict[str, object]] = {**MINIMAL, "scaleTier": "CUSTOM", "masterType": "n1-standard-8"}


def job(**training: object) -> dict[str, object]:
    """A right job on the default tier with these fields changed."""
    return {"jobId": "digits_1", "trainingInput": {**MINIMAL, **training}}


def custom(**training: object) -> dict[str, object]:
    return {"jobId": "digits_1", "trainingInput": {**CUSTOM, **training}}


def gpus(kind: str, count: object) -> dict[str, object]:
    return {"acceleratorConfig": {"type": kind, "count": count}}
