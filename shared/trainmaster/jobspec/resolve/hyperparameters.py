"""Resolve `trainingInput.hyperparameters` to a tuning.

Source of names, defaults and rules: the discovery document of `ml` v1, HyperparameterSpec and
ParameterSpec.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.search_space import ParameterKind
from trainmaster.core.model.tuning import Algorithm, Goal, StoppingRule, Tuning
from trainmaster.jobspec.fields.tuning_parameters import (
    ParameterPaths,
    ParameterRequest,
    check_size,
    resolve_parameters,
    resolve_resumed_job,
)
from trainmaster.jobspec.formats.ai_platform import (
    HyperparameterSpec,
    ParameterSpec,
    ScaleType,
    TrainingInput,
)
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT

METRIC_TAG_DEFAULT: Final = "training/hptuning/metric"
"""Name of the metric of a document that names none."""

_PATH: Final[FieldPath] = (TRAINING_INPUT, "hyperparameters")
_RANGES: Final = (ParameterKind.DOUBLE, ParameterKind.INTEGER)
_KINDS_OF_FIELD: Final = {
    "minValue": _RANGES,
    "maxValue": _RANGES,
    "categoricalValues": (ParameterKind.CATEGORICAL,),
    "discreteValues": (ParameterKind.DISCRETE,),
    "scaleType": (*_RANGES, ParameterKind.DISCRETE),
}
"""Field → the kinds of parameters that may have it."""


def resolve_hyperparameters(training: TrainingInput, problems: Problems) -> Tuning | None:
    """Return the tuning of a tuning job; None for any other job."""
    spec = training.hyperparameters
    if spec is None:
        return None
    if not spec.params and not problems.has_any_at((*_PATH, "params")):
        problems.add(
            (*_PATH, "params"),
            "is required",
            example=[{"parameterName": "learning-rate", "type": "DOUBLE"}],
        )
    requests = [
        _request_parameter(param, index, problems) for index, param in enumerate(spec.params)
    ]
    parameters = resolve_parameters(requests, problems)
    _check_grid(spec, problems)
    check_size(parameters, spec.max_trials or 1, (*_PATH, "maxTrials"), problems)
    return Tuning(
        parameters=parameters,
        goal=spec.goal or Goal.MAXIMIZE,
        algorithm=spec.algorithm or Algorithm.BAYESIAN,
        metric_tag=spec.hyperparameter_metric_tag or METRIC_TAG_DEFAULT,
        max_trials=spec.max_trials or 1,
        max_parallel=spec.max_parallel_trials or 1,
        max_failed=spec.max_failed_trials or 0,
        stopping=StoppingRule.MEDIAN if spec.enable_trial_early_stopping else StoppingRule.NONE,
        resumes=resolve_resumed_job(
            spec.resume_previous_job_id, (*_PATH, "resumePreviousJobId"), problems
        ),
    )


def _check_grid(spec: HyperparameterSpec, problems: Problems) -> None:
    for index, param in enumerate(spec.params):
        if param.type is ParameterKind.DOUBLE and spec.algorithm is Algorithm.GRID_SEARCH:
            problem = (
                "cannot be DOUBLE for GRID_SEARCH, which tries every value: a range of real numbers"
                " has no end"
            )
            problems.add((*_PATH, "params", index, "type"), problem, example="DISCRETE")


def _request_parameter(spec: ParameterSpec, index: int, problems: Problems) -> ParameterRequest:
    path: FieldPath = (*_PATH, "params", index)
    scale = None if spec.scale_type is ScaleType.NONE else spec.scale_type
    if spec.type is None:
        problems.add((*path, "type"), "is required", example="DOUBLE")
    values = {
        "minValue": spec.min_value,
        "maxValue": spec.max_value,
        "categoricalValues": spec.categorical_values,
        "discreteValues": spec.discrete_values,
        "scaleType": scale,
    }
    for name, kinds in _KINDS_OF_FIELD.items():
        if spec.type is not None and spec.type not in kinds and values[name]:
            problems.add_text(
                (*path, name),
                f"cannot be set for a parameter of type {spec.type}",
                advice="leave it out",
            )
    is_categorical = spec.type is ParameterKind.CATEGORICAL
    return ParameterRequest(
        name=spec.parameter_name,
        kind=spec.type,
        paths=ParameterPaths(
            name=(*path, "parameterName"),
            low=(*path, "minValue"),
            high=(*path, "maxValue"),
            values=(*path, "categoricalValues" if is_categorical else "discreteValues"),
            scale=(*path, "scaleType"),
        ),
        low=spec.min_value,
        high=spec.max_value,
        categories=spec.categorical_values if is_categorical else (),
        numbers=spec.discrete_values if spec.type is ParameterKind.DISCRETE else (),
        scale=scale,
    )
