"""`projects.locations.customJobs` of Vertex AI v1. Source: its discovery document.

The job of a training pipeline is listed here too: it is the `backingCustomJob` of the pipeline.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from trainmaster.api.errors import Json
from trainmaster.api.vertex_resource import STATUS_FIELDS, VertexResource
from trainmaster.core.model.job import Job

_FIELDS_BESIDE_SPEC: Final = {
    "displayName": "displayName",
    "display_name": "displayName",
    "jobSpec": "jobSpec",
    "trainingTaskInputs": "jobSpec",
    "training_task_inputs": "jobSpec",
    "trainingTaskDefinition": "",
    "training_task_definition": "",
    "job_spec": "jobSpec",
    "encryptionSpec": "encryptionSpec",
    "encryption_spec": "encryptionSpec",
    "labels": "",
    "jobId": "",
    "job_id": "",
    "trainmaster": "",
}
"""Field of a document other than those of a bare specification → the field that shows it; empty: not shown as sent."""


class CustomJobs(VertexResource):
    collection: ClassVar[str] = "customJobs"
    message: ClassVar[str] = "custom_job"
    fields: ClassVar[frozenset[str]] = frozenset({*STATUS_FIELDS, "displayName", "jobSpec", "encryptionSpec"})
    required: ClassVar[tuple[str, ...]] = ("displayName", "jobSpec")

    def includes(self, job: Job) -> bool:
        return job.tuning is None and job.trial_of is None

    def specification(self, job: Job) -> Json:
        document = json.loads(job.spec_json)
        bare_spec = {name: value for name, value in document.items() if name not in _FIELDS_BESIDE_SPEC}
        sent = {
            name: document[spelling] for spelling, name in _FIELDS_BESIDE_SPEC.items() if spelling in document and name
        }
        return {"jobSpec": bare_spec, **sent}


CUSTOM_JOBS: Final = CustomJobs()
