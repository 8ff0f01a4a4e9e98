"""The permission that each method requires, by the name that Google's clients know.

The names are those of Vertex AI and of AI Platform Training (the old service), but neither Vertex
AI's roles nor any other role on the project grants them: `trainmaster.core.intake.callers`.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

COLLECTIONS: Final = ("customJobs", "hyperparameterTuningJobs", "trainingPipelines")
VERBS: Final = ("create", "get", "list", "cancel", "delete")


def vertex_permissions(collection: str) -> tuple[str, ...]:
    """Return Vertex AI's permission for each of VERBS on resources such as `customJobs`."""
    return tuple(f"aiplatform.{collection}.{verb}" for verb in VERBS)


KEPT_MACHINES: Final = "aiplatform.persistentResources"
"""Prefix of the permissions for machines that are kept."""
CREATE, GET, LIST, CANCEL, DELETE = vertex_permissions("customJobs")
PROJECT: Final = "resourcemanager.projects.get"
REQUIRED_PERMISSIONS: Final = (
    PROJECT,
    *chain.from_iterable(map(vertex_permissions, COLLECTIONS)),
    *(f"{KEPT_MACHINES}.{verb}" for verb in VERBS if verb != "cancel"),
)
EQUIVALENT_PERMISSIONS: Final[dict[str, str]] = {
    **{permission: permission for permission in REQUIRED_PERMISSIONS},
    "ml.jobs.create": CREATE,
    "ml.jobs.get": GET,
    "ml.jobs.list": LIST,
    "ml.jobs.cancel": CANCEL,
    "ml.jobs.update": CREATE,
    "ml.jobs.getIamPolicy": GET,
    "ml.locations.get": PROJECT,
    "ml.locations.list": PROJECT,
    "ml.projects.getConfig": PROJECT,
}
"""Permission, by its current name or that of the old service → the permission that is checked.

Vertex AI has none for changing labels: a caller who may create a job may label one.
"""
