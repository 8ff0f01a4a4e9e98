"""`projects.locations.trainingPipelines` of Vertex AI v1, for custom training.

Source: its discovery document.

A pipeline and its custom job are one job here and have the same number. The document is stored with
the pipeline's own fields. `trainingTaskInputs` has no schema in the SDK, which mixes snake_case and
camelCase in it and sends every number as a JSON float, arguments included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Final

from trainmaster.api.errors import Json
from trainmaster.api.request import Call, Service
from trainmaster.api.vertex_resource import STATES, VertexResource, get_field
from trainmaster.core.model.job import Job, JobState, public_id
from trainmaster.jobspec.reading.document_kinds import VERTEX_PIPELINE, DocumentKind

DEFINITION: Final = "trainingTaskDefinition"
INPUTS: Final = "trainingTaskInputs"
_TEXTS: Final = ("args", "command")
"""Lists of strings, in which the SDK also sends numbers."""


class TrainingPipelines(VertexResource):
    """The resource `trainingPipelines`."""

    kind: ClassVar[DocumentKind] = VERTEX_PIPELINE
    message: ClassVar[str] = "training_pipeline"
    required: ClassVar[tuple[str, ...]] = ("displayName", DEFINITION, INPUTS)
    states: ClassVar[Mapping[JobState, str]] = {
        state: name.replace("JOB_STATE", "PIPELINE_STATE") for state, name in STATES.items()
    }

    def read_document(self, sent: Mapping[str, object]) -> dict[str, object]:
        return super().read_document(
            {name: _with_whole_numbers(value, name) for name, value in sent.items()}
        )

    def includes(self, job: Job) -> bool:
        if DEFINITION not in job.spec_json:  # most jobs: their document need not be parsed
            return False
        return get_field(json.loads(job.spec_json), DEFINITION) is not None

    def view(self, job: Job, call: Call, service: Service) -> Json:
        parent = f"projects/{call.project}/locations/{call.params['location']}"
        custom_job = f"{parent}/customJobs/{public_id(job.job_id)}"
        return {
            **super().view(job, call, service),
            "trainingTaskMetadata": {"backingCustomJob": custom_job},
        }


TRAINING_PIPELINES: Final = TrainingPipelines()


def _with_whole_numbers(value: object, field: str = "") -> object:
    """Return a value with integers for whole floats, and strings for numbers among arguments.

    The SDK turns the argument 5 into 5.0. It becomes "5" again, because the caller almost always
    passed an integer.
    """
    match value:
        case dict():
            return {name: _with_whole_numbers(item, str(name)) for name, item in value.items()}
        case list():
            items = [_with_whole_numbers(item) for item in value]
            return [_as_text(item) for item in items] if field in _TEXTS else items
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _as_text(item: object) -> object:
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    return str(item) if is_number else item
