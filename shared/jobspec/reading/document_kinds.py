"""The kinds of document there are, and which of them one is.

Job          a TrainingInput under `trainingInput`          AI Platform's
CustomJob    worker pools under `jobSpec`, or by themselves  Vertex AI's
TuningJob    those of each trial under `trialJobSpec`        Vertex AI's
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.jobspec.formats.ai_platform import Job, TrainingInput
from shared.jobspec.formats.base_model import Wire, example_in, fields_of, spellings_of
from shared.jobspec.formats.vertex import CustomJob, CustomJobSpec
from shared.jobspec.formats.vertex_study import TuningJob
from shared.jobspec.reading.problems import Loc, snake_case

TRAINING_INPUT: Final = "trainingInput"
JOB_SPEC: Final = "jobSpec"
EXTENSION: Final = "trainmaster"


@dataclass(frozen=True, slots=True)
class Kind:
    """`body`: the field that holds what is run. `answers`: names that only the service's replies have.

    `may_be_bare`: the body's fields may stand in the document itself, with nothing around them.
    """

    root: type[Wire]
    body: str
    body_model: type[Wire]
    answers: tuple[str, ...]
    may_be_bare: bool = False


# Source of the names: both APIs' schemas mark them as output only.
AI_PLATFORM: Final = Kind(
    Job,
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
VERTEX: Final = Kind(
    CustomJob,
    JOB_SPEC,
    CustomJobSpec,
    ("name", "state", "createTime", "startTime", "endTime", "updateTime", "error", "webAccessUris"),
    may_be_bare=True,
)

TUNING: Final = Kind(TuningJob, JOB_SPEC, CustomJobSpec, (*VERTEX.answers, "trials"))

_TUNING_SIGNS: Final = ("studySpec", "study_spec", *TuningJob.renamed)
_VERTEX_SIGNS: Final = (JOB_SPEC, "workerPoolSpecs")
BODIES: Final = frozenset(spelled for name in (TRAINING_INPUT, *_VERTEX_SIGNS) for spelled in (name, snake_case(name)))
"""Names that hold what is run, of either kind."""


def kind_of(document: Mapping[str, object]) -> Kind:
    if any(name in _TUNING_SIGNS for name in document):
        return TUNING
    known = spellings_of(CustomJob) | spellings_of(CustomJobSpec)
    is_vertex = any(known.get(name) in _VERTEX_SIGNS for name in document)
    is_training = any(spellings_of(Job).get(name) == TRAINING_INPUT for name in document)
    return VERTEX if is_vertex and not is_training else AI_PLATFORM


def example_of(loc: Loc) -> object:
    """A right value for a known place; for a list's item, its first; for a label, its value."""
    model: type[Wire] | None = Job if loc[0] in fields_of(Job) else TuningJob
    value: object = None
    for step in loc:
        if isinstance(step, int) and model is not None:
            value = _first(value)
        elif model is None:
            return _first(value)
        else:
            value = example_in(model, str(step))
            model = fields_of(model)[str(step)]
    return value


def _first(value: object) -> object:
    match value:
        case dict():
            return next(iter(value.values()), None)
        case list():
            return next(iter(value), None)
        case _:
            return value
