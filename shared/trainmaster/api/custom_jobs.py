"""`projects.locations.customJobs` of Vertex AI v1. Source: its discovery document.

The job of a training pipeline is listed here too: it is the `backingCustomJob` of the pipeline.
"""

from __future__ import annotations

import json
from typing import ClassVar, Final

from trainmaster.api.errors import Json
from trainmaster.api.vertex_resource import STATUS_FIELDS, VertexResource, get_field
from trainmaster.core.model.job import Job
from trainmaster.jobspec import detect_kind
from trainmaster.jobspec.reading.document_kinds import VERTEX, DocumentKind

_SENT_FIELDS: Final = ("displayName", "encryptionSpec")


class CustomJobs(VertexResource):
    kind: ClassVar[DocumentKind] = VERTEX
    message: ClassVar[str] = "custom_job"
    fields: ClassVar[frozenset[str]] = frozenset({*STATUS_FIELDS, "displayName", "jobSpec", "encryptionSpec"})
    required: ClassVar[tuple[str, ...]] = ("displayName", "jobSpec")

    def includes(self, job: Job) -> bool:
        return job.tuning is None and job.trial_of is None

    def specification(self, job: Job) -> Json:
        document = json.loads(job.spec_json)
        kind = detect_kind(document)
        whole = kind.wrapped(document)
        sent = {name: value for name in _SENT_FIELDS if (value := get_field(whole, name)) is not None}
        return {**sent, "jobSpec": get_field(whole, kind.sent_body)}


CUSTOM_JOBS: Final = CustomJobs()
