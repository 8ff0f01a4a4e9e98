"""`projects.locations.customJobs` of Vertex AI v1. Source: its discovery document.

The job of a training pipeline is listed here too: it is the `backingCustomJob` of the pipeline.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from trainmaster.api.errors import Json
from trainmaster.api.vertex_resource import VertexResource, get_field
from trainmaster.core.model.job import Job
from trainmaster.jobspec.reading.document_kinds import VERTEX, DocumentKind, detect_kind


class CustomJobs(VertexResource):
    """The resource `customJobs`."""

    kind: ClassVar[DocumentKind] = VERTEX
    message: ClassVar[str] = "custom_job"
    required: ClassVar[tuple[str, ...]] = ("displayName", "jobSpec")

    def includes(self, job: Job) -> bool:
        return job.tuning is None and job.trial_of is None

    def specification(self, job: Job) -> Json:
        """Return the fields of the job that its submitter set.

        What to run is shown as `jobSpec`, also if a job file has it at the top level, or a pipeline
        as its `trainingTaskInputs`.
        """
        document = json.loads(job.spec_json)
        kind = detect_kind(document)
        with_body_field = kind.wrapped(document)
        return {
            **super().specification(job),
            "jobSpec": get_field(with_body_field, kind.sent_body),
        }


CUSTOM_JOBS: Final = CustomJobs()
