"""The kinds of job document, and which of them a document is.

AI_PLATFORM     a TrainingInput under `trainingInput`
VERTEX          worker pools under `jobSpec`, or at the top level
VERTEX_TUNING   a study, and the worker pools of each trial under `trialJobSpec`
VERTEX_PIPELINE a training pipeline, and its worker pools under `trainingTaskInputs`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, TrainingInput
from trainmaster.jobspec.formats.base_model import WireModel, accepted_names, field_example, nested_models
from trainmaster.jobspec.formats.vertex import CustomJobSpec, VertexCustomJob
from trainmaster.jobspec.formats.vertex_pipeline import VertexPipeline
from trainmaster.jobspec.formats.vertex_study import VertexTuningJob
from trainmaster.jobspec.problems import FieldPath, snake_case

TRAINING_INPUT: Final = "trainingInput"
JOB_SPEC: Final = "jobSpec"
EXTENSION: Final = "trainmaster"


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of job document."""

    model: type[WireModel]
    """Model of the whole document."""
    body: str
    """Canonical name of the field that holds what to run."""
    body_model: type[WireModel]
    output_only: tuple[str, ...]
    """Fields that only the service's answers have. Source: both APIs' schemas mark them as output only."""
    allows_bare_body: bool = False
    """The fields of the body may stand at the top level of the document."""


AI_PLATFORM: Final = DocumentKind(
    AiPlatformJob,
    TRAINING_INPUT,
    TrainingInput,
    (
        "createTime",
        "startTime",
        "endTime",
        "state",
        "errorMessage",
        "etag",
        "jobPosition",
        "trainingOutput",
        "predictionOutput",
    ),
)
VERTEX: Final = DocumentKind(
    VertexCustomJob,
    JOB_SPEC,
    CustomJobSpec,
    ("name", "state", "createTime", "startTime", "endTime", "updateTime", "error", "webAccessUris"),
    allows_bare_body=True,
)
VERTEX_TUNING: Final = DocumentKind(VertexTuningJob, JOB_SPEC, CustomJobSpec, (*VERTEX.output_only, "trials"))

VERTEX_PIPELINE: Final = DocumentKind(
    VertexPipeline, JOB_SPEC, CustomJobSpec, (*VERTEX.output_only, "trainingTaskMetadata")
)

_PIPELINE_FIELDS: Final = ("trainingTaskDefinition", "training_task_definition", *VertexPipeline.other_names)
_TUNING_FIELDS: Final = ("studySpec", "study_spec", *VertexTuningJob.other_names)
_VERTEX_FIELDS: Final = (JOB_SPEC, "workerPoolSpecs")
BODY_NAMES: Final = frozenset(
    spelling for name in (TRAINING_INPUT, *_VERTEX_FIELDS) for spelling in (name, snake_case(name))
)
"""Names of fields that hold what to run, in a document of any kind."""


def detect_kind(document: Mapping[str, object]) -> DocumentKind:
    """Return the kind by the names at the top level; AI_PLATFORM if they do not identify one."""
    if any(name in _TUNING_FIELDS for name in document):
        return VERTEX_TUNING
    if any(name in _PIPELINE_FIELDS for name in document):
        return VERTEX_PIPELINE
    vertex_names = accepted_names(VertexCustomJob) | accepted_names(CustomJobSpec)
    is_vertex = any(vertex_names.get(name) in _VERTEX_FIELDS for name in document)
    is_ai_platform = any(accepted_names(AiPlatformJob).get(name) == TRAINING_INPUT for name in document)
    return VERTEX if is_vertex and not is_ai_platform else AI_PLATFORM


def example_at(path: FieldPath) -> object:
    """Return a correct value for a known path; for a list item its first, for a label its value."""
    model: type[WireModel] | None = AiPlatformJob if path[0] in nested_models(AiPlatformJob) else VertexTuningJob
    value: object = None
    for step in path:
        if isinstance(step, int) and model is not None:
            value = _first(value)
        elif model is None:
            return _first(value)
        else:
            value = field_example(model, str(step))
            model = nested_models(model)[str(step)]
    return value


def _first(value: object) -> object:
    match value:
        case dict():
            return next(iter(value.values()), None)
        case list():
            return next(iter(value), None)
        case _:
            return value
