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
    min_value: OptionalDouble = wire_field(0.0001, "Smallest value.")
    max_value: OptionalDouble = wire_field(0.1, "Largest value.")
    default_value: OptionalDouble = wire_field(0.01, _WITHOUT_EFFECT)


class IntegerValueSpec(WireModel):
    min_value: OptionalDouble = wire_field(1, "Smallest value.")
    max_value: OptionalDouble = wire_field(8, "Largest value.")
    default_value: OptionalDouble = wire_field(4, _WITHOUT_EFFECT)


class CategoricalValueSpec(WireModel):
    values: tuple[String, ...] = wire_field(["adam", "sgd"], "The values to try.", default=())
    default_value: OptionalString = wire_field("adam", _WITHOUT_EFFECT)


class DiscreteValueSpec(WireModel):
    values: tuple[Double, ...] = wire_field(
        [16, 32, 64], "The values to try, increasing.", default=()
    )
    default_value: OptionalDouble = wire_field(32, _WITHOUT_EFFECT)


class StudyParameter(WireModel):
    parameter_id: OptionalString = wire_field(
        "learning-rate", "Name of the parameter: the program gets --NAME."
    )
    double_value_spec: DoubleValueSpec | None = wire_field(
        {"minValue": 0.0001, "maxValue": 0.1}, "A real number."
    )
    integer_value_spec: IntegerValueSpec | None = wire_field(
        {"minValue": 1, "maxValue": 8}, "A whole number."
    )
    categorical_value_spec: CategoricalValueSpec | None = wire_field(
        {"values": ["adam", "sgd"]}, "One of some words."
    )
    discrete_value_spec: DiscreteValueSpec | None = wire_field(
        {"values": [16, 32, 64]}, "One of some numbers."
    )
    scale_type: OptionalScale = wire_field(
        "UNIT_LOG_SCALE", "How values are spread over the range."
    )
    conditional_parameter_specs: tuple[Mapping[str, object], ...] = wire_field(
        [], _UNSUPPORTED, default=()
    )


class StudyMetric(WireModel):
    metric_id: OptionalString = wire_field("accuracy", "Name of the metric that trials report.")
    goal: OptionalGoal = wire_field(
        "MAXIMIZE", "Whether larger or smaller metrics are better; default: MAXIMIZE."
    )
    safety_config: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)


class StudySpec(WireModel):
    metrics: tuple[StudyMetric, ...] = wire_field(
        [_METRIC], "The metric to optimize: exactly one.", default=()
    )
    parameters: tuple[StudyParameter, ...] = wire_field(
        [_RATE], "The parameters to tune.", default=()
    )
    algorithm: OptionalAlgorithm = wire_field(
        "RANDOM_SEARCH", "Search algorithm; default: Bayesian optimization."
    )
    measurement_selection_type: Annotated[
        MeasurementSelection | None, one_of(MeasurementSelection)
    ] = wire_field("LAST_MEASUREMENT", "The last measurement counts, whatever is given.")
    observation_noise: Annotated[ObservationNoise | None, one_of(ObservationNoise)] = wire_field(
        "LOW", _WITHOUT_EFFECT
    )
    decay_curve_stopping_spec: Mapping[str, object] | None = wire_field({}, _WORST_QUARTER)
    median_automated_stopping_spec: Mapping[str, object] | None = wire_field(
        {}, "Trials worse than the median of the completed ones are stopped."
    )
    convex_automated_stopping_spec: Mapping[str, object] | None = wire_field({}, _WORST_QUARTER)
    study_stopping_config: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)


class VertexTuningJob(VertexCustomJob):
    """A CustomJob whose specification is that of each trial, and the study."""

    other_names: ClassVar[Mapping[str, str]] = {
        "trialJobSpec": "jobSpec",
        "trial_job_spec": "jobSpec",
    }

    study_spec: StudySpec = wire_field(
        {"metrics": [_METRIC], "parameters": [_RATE]},
        "What to tune, and by which metric.",
        factory=StudySpec,
    )
    max_trial_count: TrialCount = wire_field(10, "Number of trials; default: 1.")
    parallel_trial_count: TrialCount = wire_field(
        2, "Trials that run at the same time; default: 1."
    )
    max_failed_trial_count: TrialCount = wire_field(3, "Failed trials after which the job fails.")
