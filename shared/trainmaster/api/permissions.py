"""The IAM permission that each method requires on the project.

The permissions `ml.*` ended with the old service, so no role is sure to include them. Vertex AI's permissions for
training jobs mean the same, and the roles `roles/aiplatform.user` and `roles/aiplatform.viewer` include them; users who
moved on from AI Platform have these roles. None of the permissions gives access to Firestore or to VMs.
docs/decisions/0008-the-old-services-api.md
"""

from __future__ import annotations

from typing import Final

CREATE: Final = "aiplatform.customJobs.create"
GET: Final = "aiplatform.customJobs.get"
LIST: Final = "aiplatform.customJobs.list"
CANCEL: Final = "aiplatform.customJobs.cancel"
DELETE: Final = "aiplatform.customJobs.delete"
TUNING_CREATE: Final = "aiplatform.hyperparameterTuningJobs.create"
TUNING_GET: Final = "aiplatform.hyperparameterTuningJobs.get"
TUNING_LIST: Final = "aiplatform.hyperparameterTuningJobs.list"
TUNING_CANCEL: Final = "aiplatform.hyperparameterTuningJobs.cancel"
TUNING_DELETE: Final = "aiplatform.hyperparameterTuningJobs.delete"
PIPELINE_CREATE: Final = "aiplatform.trainingPipelines.create"
PIPELINE_GET: Final = "aiplatform.trainingPipelines.get"
PIPELINE_LIST: Final = "aiplatform.trainingPipelines.list"
PIPELINE_CANCEL: Final = "aiplatform.trainingPipelines.cancel"
PIPELINE_DELETE: Final = "aiplatform.trainingPipelines.delete"
PROJECT: Final = "resourcemanager.projects.get"

REQUIRED_PERMISSIONS: Final = (
    *(CREATE, GET, LIST, CANCEL, DELETE, PROJECT),
    *(TUNING_CREATE, TUNING_GET, TUNING_LIST, TUNING_CANCEL, TUNING_DELETE),
    *(PIPELINE_CREATE, PIPELINE_GET, PIPELINE_LIST, PIPELINE_CANCEL, PIPELINE_DELETE),
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
