"""Which permission of the project each method asks for.

`ml.*` went with the old service: no role can be sure to hold it. Vertex AI's permissions to train exist, say the same,
and come with `roles/aiplatform.user` and `roles/aiplatform.viewer`; whoever moved on from AI Platform has them, and
none of them opens the state or the machines. See docs/decisions.
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
PROJECT: Final = "resourcemanager.projects.get"

CALLED: Final[dict[str, str]] = {
    **{permission: permission for permission in (CREATE, GET, LIST, CANCEL, DELETE, PROJECT)},
    **{each: each for each in (TUNING_CREATE, TUNING_GET, TUNING_LIST, TUNING_CANCEL, TUNING_DELETE)},
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
"""What a permission is called, today and by the old service → the one that is asked for. Vertex AI has none for
changing labels: who may make a job may label one."""
