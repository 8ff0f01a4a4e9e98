"""Names of fields of job documents, for readers of stored jobs, which need none of the formats."""

from __future__ import annotations

from typing import Final

TRAINING_INPUT: Final = "trainingInput"
JOB_SPEC: Final = "jobSpec"
EXTENSION: Final = "trainmaster"
PACKED_FROM: Final = "packedFrom"
"""Field of `trainmaster` that only jobs submitted with a folder have."""
MANIFEST_NAMES: Final = ("apiVersion", "kind")
"""The fields that together mark an object of Kubernetes."""
