"""The IAM permission that each method requires on the project.

The permissions `ml.*` ended with the old service, so no role is sure to include them. Vertex AI's
permissions for training jobs mean the same, and the roles `roles/aiplatform.user` and
`roles/aiplatform.viewer` include them; users who moved on from AI Platform have these roles. None
of the permissions gives access to Firestore or to VMs. docs/decisions/0008-the-old-services-api.md
"""

from __future__ import annotations

from itertools import chain
from typing import Final

COLLECTIONS: Final = ("customJobs", "hyperparameterTuningJobs", "trainingPipelines")
VERBS: Final = ("create", "get", "list", "cancel", "delete")


def vertex_permissions(collection: str) -> tuple[str, ...]:
    """Return Vertex AI's permission for each of VERBS on resources such as `customJobs`."""
    return tuple(f"aiplatform.{collection}.{verb}" for verb in VERBS)


CREATE, GET, LIST, CANCEL, DELETE = vertex_permissions("customJobs")
PROJECT: Final = "resourcemanager.projects.get"
REQUIRED_PERMISSIONS: Final = (
    PROJECT,
    *chain.from_iterable(map(vertex_permissions, COLLECTIONS)),
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
