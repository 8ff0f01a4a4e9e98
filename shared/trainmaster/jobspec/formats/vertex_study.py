"""The tuning job document of Vertex AI: a HyperparameterTuningJob, field for field as in its API.

    VertexTuningJob
    ├── studySpec
    │   ├── metrics              [{metricId, goal}]: exactly one
    │   ├── parameters           [{parameterId, one of four …ValueSpec, scaleType}]
    │   └── algorithm, …
    ├── maxTrialCount, parallelTrialCount, maxFailedTrialCount
    └── trialJobSpec             CustomJobSpec of each trial: what is `jobSpec` in a CustomJob

Source: the discovery document of `aiplatform` v1 (revision 20261106).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal, get_args

from trainmaster.jobspec.formats.ai_platform import (
    OptionalAlgorithm,
    OptionalGoal,
    ScaleType,
    TrialCount,
)
from trainmaster.jobspec.formats.base_model import WireModel, wire_field
from trainmaster.jobspec.formats.scalars import (
    Double,
    OptionalDouble,
    OptionalString,
    String,
    one_of,
)
from trainmaster.jobspec.formats.vertex import VertexCustomJob


class MeasurementSelection(StrEnum):
    LAST_MEASUREMENT = "LAST_MEASUREMENT"
    BEST_MEASUREMENT = "BEST_MEASUREMENT"


class ObservationNoise(StrEnum):
    LOW = "LOW"
    HIGH = "HIGH"


_Scale = Literal[
    ScaleType.UNIT_LINEAR_SCALE, ScaleType.UNIT_LOG_SCALE, ScaleType.UNIT_REVERSE_LOG_SCALE
]
"""Vertex AI has no scale `NONE`: it leaves the field out."""
OptionalScale = Annotated[_Scale | None, one_of(get_args(_Scale))]

_RATE: Final = {
    "parameterId": "learning-rate",
    "doubleValueSpec": {"minValue": 0.0001, "maxValue": 0.1},
}
_METRIC: Final = {"metricId": "accuracy", "goal": "MAXIMIZE"}
_WITHOUT_EFFECT: Final = "Accepted without effect."
_WORST_QUARTER: Final = "Trials in the worst quarter of the completed ones are stopped."
_UNSUPPORTED: Final = "Not supported."


class DoubleValueSpec(WireModel):
    min_value: OptionalDouble = wire_field("Smallest value.", example=0.0001)
    max_value: OptionalDouble = wire_field("Largest value.", example=0.1)
    default_value: OptionalDouble = wire_field(_WITHOUT_EFFECT, example=0.01)


class IntegerValueSpec(WireModel):
    min_value: OptionalDouble = wire_field("Smallest value.", example=1)
    max_value: OptionalDouble = wire_field("Largest value.", example=8)
    default_value: OptionalDouble = wire_field(_WITHOUT_EFFECT, example=4)


class CategoricalValueSpec(WireModel):
    values: tuple[String, ...] = wire_field(
        "The values to try.", example=["adam", "sgd"], default=()
    )
    default_value: OptionalString = wire_field(_WITHOUT_EFFECT, example="adam")


class DiscreteValueSpec(WireModel):
    values: tuple[Double, ...] = wire_field(
        "The values to try, increasing.", example=[16, 32, 64], default=()
    )
    default_value: OptionalDouble = wire_field(_WITHOUT_EFFECT, example=32)


class StudyParameter(WireModel):
    parameter_id: OptionalString = wire_field(
        "Name of the parameter: the program gets --NAME.", example="learning-rate"
    )
    double_value_spec: DoubleValueSpec | None = wire_field(
        "A real number.", example={"minValue": 0.0001, "maxValue": 0.1}
    )
    integer_value_spec: IntegerValueSpec | None = wire_field(
        "A whole number.", example={"minValue": 1, "maxValue": 8}
    )
    categorical_value_spec: CategoricalValueSpec | None = wire_field(
        "One of some words.", example={"values": ["adam", "sgd"]}
    )
    discrete_value_spec: DiscreteValueSpec | None = wire_field(
        "One of some numbers.", example={"values": [16, 32, 64]}
    )
    scale_type: OptionalScale = wire_field(
        "How values are spread over the range.", example="UNIT_LOG_SCALE"
    )
    conditional_parameter_specs: tuple[Mapping[str, object], ...] = wire_field(
        _UNSUPPORTED, example=[], default=()
    )


class StudyMetric(WireModel):
    metric_id: OptionalString = wire_field(
        "Name of the metric that trials report.", example="accuracy"
    )
    goal: OptionalGoal = wire_field(
        "Whether larger or smaller metrics are better; default: MAXIMIZE.", example="MAXIMIZE"
    )
    safety_config: Mapping[str, object] | None = wire_field(_UNSUPPORTED, example={})


class StudySpec(WireModel):
    metrics: tuple[StudyMetric, ...] = wire_field(
        "The metric to optimize: exactly one.", example=[_METRIC], default=()
    )
    parameters: tuple[StudyParameter, ...] = wire_field(
        "The parameters to tune.", example=[_RATE], default=()
    )
    algorithm: OptionalAlgorithm = wire_field(
        "Search algorithm; default: Bayesian optimization.", example="RANDOM_SEARCH"
    )
    measurement_selection_type: Annotated[
        MeasurementSelection | None, one_of(MeasurementSelection)
    ] = wire_field("The last measurement counts, whatever is given.", example="LAST_MEASUREMENT")
    observation_noise: Annotated[ObservationNoise | None, one_of(ObservationNoise)] = wire_field(
        _WITHOUT_EFFECT, example="LOW"
    )
    decay_curve_stopping_spec: Mapping[str, object] | None = wire_field(_WORST_QUARTER, example={})
    median_automated_stopping_spec: Mapping[str, object] | None = wire_field(
        "Trials worse than the median of the completed ones are stopped.", example={}
    )
    convex_automated_stopping_spec: Mapping[str, object] | None = wire_field(
        _WORST_QUARTER, example={}
    )
    study_stopping_config: Mapping[str, object] | None = wire_field(_UNSUPPORTED, example={})


class VertexTuningJob(VertexCustomJob):
    """A CustomJob whose specification is that of each trial, and the study."""

    other_names: ClassVar[Mapping[str, str]] = {
        "trialJobSpec": "jobSpec",
        "trial_job_spec": "jobSpec",
    }

    study_spec: StudySpec = wire_field(
        "What to tune, and by which metric.",
        example={"metrics": [_METRIC], "parameters": [_RATE]},
        factory=StudySpec,
    )
    max_trial_count: TrialCount = wire_field("Number of trials; default: 1.", example=10)
    parallel_trial_count: TrialCount = wire_field(
        "Trials that run at the same time; default: 1.", example=2
    )
    max_failed_trial_count: TrialCount = wire_field(
        "Failed trials after which the job fails.", example=3
    )
