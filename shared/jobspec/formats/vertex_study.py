"""A Vertex AI HyperparameterTuningJob as it travels: a CustomJob for each trial, and what is tried.

    HyperparameterTuningJob
    ├── studySpec
    │   ├── metrics              [{metricId, goal}]: one
    │   ├── parameters           [{parameterId, one of four …ValueSpec, scaleType}]
    │   └── algorithm, …
    ├── maxTrialCount, parallelTrialCount, maxFailedTrialCount
    └── trialJobSpec             CustomJobSpec: what stands under `jobSpec` in a CustomJob

Source: the discovery document of `aiplatform` v1 (revision 20261106).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field

from shared.jobspec.formats.ai_platform import AlgorithmType, GoalType
from shared.jobspec.formats.base_model import Wire
from shared.jobspec.formats.scalars import Count, Figure, Item, Number, Text, word
from shared.jobspec.formats.vertex import CustomJob

SELECTIONS: Final = ("LAST_MEASUREMENT", "BEST_MEASUREMENT")
NOISES: Final = ("LOW", "HIGH")
STUDY_SCALES: Final = ("UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")

Selection = Annotated[str | None, BeforeValidator(lambda value: word(value, SELECTIONS))]
Noise = Annotated[str | None, BeforeValidator(lambda value: word(value, NOISES))]
StudyScale = Annotated[str | None, BeforeValidator(lambda value: word(value, STUDY_SCALES))]

_RATE: Final = {"parameterId": "learning-rate", "doubleValueSpec": {"minValue": 0.0001, "maxValue": 0.1}}
_METRIC: Final = {"metricId": "accuracy", "goal": "MAXIMIZE"}


class DoubleValueSpec(Wire):
    min_value: Number = Field(None, examples=[0.0001])
    max_value: Number = Field(None, examples=[0.1])
    default_value: Number = Field(None, examples=[0.01])


class IntegerValueSpec(Wire):
    min_value: Number = Field(None, examples=[1])
    max_value: Number = Field(None, examples=[8])
    default_value: Number = Field(None, examples=[4])


class CategoricalValueSpec(Wire):
    values: tuple[Item, ...] | None = Field(None, examples=[["adam", "sgd"]])
    default_value: Text = Field(None, examples=["adam"])


class DiscreteValueSpec(Wire):
    values: tuple[Figure, ...] | None = Field(None, examples=[[16, 32, 64]])
    default_value: Number = Field(None, examples=[32])


class StudyParameter(Wire):
    parameter_id: Text = Field(None, examples=["learning-rate"])
    double_value_spec: DoubleValueSpec | None = Field(None, examples=[{"minValue": 0.0001, "maxValue": 0.1}])
    integer_value_spec: IntegerValueSpec | None = Field(None, examples=[{"minValue": 1, "maxValue": 8}])
    categorical_value_spec: CategoricalValueSpec | None = Field(None, examples=[{"values": ["adam", "sgd"]}])
    discrete_value_spec: DiscreteValueSpec | None = Field(None, examples=[{"values": [16, 32, 64]}])
    scale_type: StudyScale = Field(None, examples=["UNIT_LOG_SCALE"])
    conditional_parameter_specs: tuple[Mapping[str, object], ...] | None = Field(None, examples=[[]])


class StudyMetric(Wire):
    metric_id: Text = Field(None, examples=["accuracy"])
    goal: GoalType = Field(None, examples=["MAXIMIZE"])
    safety_config: Mapping[str, object] | None = Field(None, examples=[{}])


class StudySpec(Wire):
    metrics: tuple[StudyMetric, ...] | None = Field(None, examples=[[_METRIC]])
    parameters: tuple[StudyParameter, ...] | None = Field(None, examples=[[_RATE]])
    algorithm: AlgorithmType = Field(None, examples=["RANDOM_SEARCH"])
    measurement_selection_type: Selection = Field(None, examples=["LAST_MEASUREMENT"])
    observation_noise: Noise = Field(None, examples=["LOW"])
    decay_curve_stopping_spec: Mapping[str, object] | None = Field(None, examples=[{}])
    median_automated_stopping_spec: Mapping[str, object] | None = Field(None, examples=[{}])
    convex_automated_stopping_spec: Mapping[str, object] | None = Field(None, examples=[{}])
    study_stopping_config: Mapping[str, object] | None = Field(None, examples=[{}])


class TuningJob(CustomJob):
    """A CustomJob whose specification has another name, and what is tried with it."""

    renamed: ClassVar[Mapping[str, str]] = {"trialJobSpec": "jobSpec", "trial_job_spec": "jobSpec"}

    study_spec: StudySpec | None = Field(None, examples=[{"metrics": [_METRIC], "parameters": [_RATE]}])
    max_trial_count: Count = Field(None, examples=[10])
    parallel_trial_count: Count = Field(None, examples=[2])
    max_failed_trial_count: Count = Field(None, examples=[3])
