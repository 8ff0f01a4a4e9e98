"""The kinds of job document, which of them a document is, and the API's resource for each.

Every entrance calls `detect_kind`: command line, upload, message, API, `doctor`, schedule, console
and Python client. Kubernetes manifests are converted to one of these kinds first (`job_document`).

| kind            | body               | identified by             | API's resource           |
| AI_PLATFORM     | `trainingInput`    | the body                  | jobs                     |
| VERTEX          | `jobSpec` (*)      | names of Vertex AI only   | customJobs               |
| VERTEX_TUNING   | `trialJobSpec`     | `studySpec`, or the body  | hyperparameterTuningJobs |
| VERTEX_PIPELINE | `trainingTaskInputs` | `trainingTask…`, the body | trainingPipelines        |

(*) The fields of the body may also stand at the top level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, TrainingInput
from trainmaster.jobspec.formats.base_model import (
    WireModel,
    accepted_names,
    field_example,
    nested_models,
)
from trainmaster.jobspec.formats.vertex import CustomJobSpec, VertexCustomJob, VertexPipeline
from trainmaster.jobspec.formats.vertex_study import VertexTuningJob
from trainmaster.jobspec.problems import FieldPath, snake_case
from trainmaster.jobspec.reading.field_names import JOB_SPEC, MANIFEST_NAMES, TRAINING_INPUT


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A kind of job document."""

    title: str
    """The kind in messages."""
    collection: str
    """Name of the API's resource, as in its address."""
    model: type[WireModel]
    """Model of the whole document."""
    body: str
    """Canonical name of the field that holds what to run."""
    sent_body: str
    """Name of that field in the API's documents."""
    body_model: type[WireModel]
    identified_by: tuple[str, ...]
    """Canonical names at the top level that make a document one of this kind, for messages."""
    output_only: tuple[str, ...]
    """Fields that only the responses of the job's API have, AI Platform Training or Vertex AI.

    Source: both APIs' schemas mark them as output only.
    """
    allows_bare_body: bool = False
    """The fields of the body may stand at the top level of the document."""

    def bare_body(self, document: Mapping[str, object]) -> dict[str, object]:
        """Return the fields of the body that stand at the top level.

        A document that has the body's own field has none.
        """
        names = accepted_names(self.model)
        if any(names.get(name) == self.body for name in document):
            return {}
        only_in_body = accepted_names(self.body_model).keys() - names
        return {name: value for name, value in document.items() if name in only_in_body}

    def wrapped(self, document: Mapping[str, object]) -> dict[str, object]:
        """Return the document as the API has it: the body in its own field, under the API's name.

        The name of the body in snake_case stays.
        """
        names = accepted_names(self.model)
        bare = self.bare_body(document) if self.allows_bare_body else {}
        result: dict[str, object] = {}
        if bare:
            result[self.sent_body] = bare
        for name, value in document.items():
            is_body = names.get(name) == self.body and name != snake_case(self.sent_body)
            if name not in bare:
                result[self.sent_body if is_body else name] = value
        return result


AI_PLATFORM: Final = DocumentKind(
    title="job of AI Platform",
    collection="jobs",
    model=AiPlatformJob,
    body=TRAINING_INPUT,
    sent_body=TRAINING_INPUT,
    body_model=TrainingInput,
    identified_by=(TRAINING_INPUT,),
    output_only=(
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
    title="custom job of Vertex AI",
    collection="customJobs",
    model=VertexCustomJob,
    body=JOB_SPEC,
    sent_body=JOB_SPEC,
    body_model=CustomJobSpec,
    identified_by=(JOB_SPEC, "workerPoolSpecs"),
    output_only=(
        "name",
        "state",
        "createTime",
        "startTime",
        "endTime",
        "updateTime",
        "error",
        "webAccessUris",
    ),
    allows_bare_body=True,
)
VERTEX_TUNING: Final = DocumentKind(
    title="tuning job of Vertex AI",
    collection="hyperparameterTuningJobs",
    model=VertexTuningJob,
    body=JOB_SPEC,
    sent_body="trialJobSpec",
    body_model=CustomJobSpec,
    identified_by=("studySpec", "trialJobSpec"),
    output_only=(*VERTEX.output_only, "trials"),
)
VERTEX_PIPELINE: Final = DocumentKind(
    title="training pipeline of Vertex AI",
    collection="trainingPipelines",
    model=VertexPipeline,
    body=JOB_SPEC,
    sent_body="trainingTaskInputs",
    body_model=CustomJobSpec,
    identified_by=("trainingTaskDefinition", "trainingTaskInputs"),
    output_only=(*VERTEX.output_only, "trainingTaskMetadata"),
)
KINDS: Final = (VERTEX_TUNING, VERTEX_PIPELINE, AI_PLATFORM, VERTEX)
"""In the order in which `detect_kind` tries them."""


def detect_kind(document: Mapping[str, object]) -> DocumentKind:
    """Return the kind by the names at the top level; AI_PLATFORM if they do not identify one."""
    for kind in KINDS:
        if any(name in document or snake_case(name) in document for name in kind.identified_by):
            return kind
    vertex = accepted_names(VertexCustomJob).keys() | accepted_names(CustomJobSpec).keys()
    common = accepted_names(AiPlatformJob).keys() | accepted_names(TrainingInput).keys()
    return VERTEX if any(name in vertex - common for name in document) else AI_PLATFORM


def kinds_of(name: str) -> list[DocumentKind]:
    """Return the kinds that the name at the top level identifies, else those that may have it."""
    identified = [
        kind
        for kind in KINDS
        if name in {*kind.identified_by, *map(snake_case, kind.identified_by)}
    ]
    return identified or [kind for kind in KINDS if name in accepted_names(kind.model)]


def describe_missing_body(found: Iterable[str]) -> str:
    """Return the problem of a document of no kind: its names, and those that identify the kinds."""
    has = ", ".join(found) or "no field"
    kinds = "; ".join(f"{' or '.join(kind.identified_by)}: {kind.title}" for kind in KINDS)
    manifest = f"{' and '.join(MANIFEST_NAMES)}: manifest of Kubeflow or JobSet"
    return (
        f"is required: the document has {has}, and none of the fields that say what to run"
        f" ({kinds}; {manifest})"
    )


def example_at(path: FieldPath) -> object:
    """Return a correct value for a known path; for a list item its first, for a label its value."""
    model: type[WireModel] | None = next(
        kind.model for kind in (AI_PLATFORM, *KINDS) if path[0] in nested_models(kind.model)
    )
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
