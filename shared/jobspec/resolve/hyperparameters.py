"""`trainingInput.hyperparameters` → what may be tried, or what is wrong with it.

Source of names, defaults and rules: the discovery document of `ml` v1, HyperparameterSpec and ParameterSpec.
"""

from __future__ import annotations

from typing import Final

from shared.core.model.job import Substitution
from shared.core.model.tuning import Algorithm, Goal, ParameterKind, Tuning
from shared.jobspec.fields.job_id import JOB_ID
from shared.jobspec.fields.tuning_parameters import Asked, Places, check_count, check_size, parameters_of
from shared.jobspec.formats.ai_platform import HyperparameterSpec, ParameterSpec, TrainingInput
from shared.jobspec.reading.document_kinds import TRAINING_INPUT
from shared.jobspec.reading.problems import Findings, Loc, given

METRIC_TAG_DEFAULT: Final = "training/hptuning/metric"
NOT_STOPPED: Final = "trials are not stopped early: each runs to its end"

_AT: Final[Loc] = (TRAINING_INPUT, "hyperparameters")
_RANGES: Final = ("DOUBLE", "INTEGER")
_FIELDS: Final = {
    "minValue": _RANGES,
    "maxValue": _RANGES,
    "categoricalValues": ("CATEGORICAL",),
    "discreteValues": ("DISCRETE",),
    "scaleType": (*_RANGES, "DISCRETE"),
}
"""Field → the types of parameters that it is for."""


def tuning_of(training: TrainingInput, found: Findings, substitutions: list[Substitution]) -> Tuning | None:
    spec = training.hyperparameters
    if spec is None:
        return None
    if not spec.params and not found.doubtful((*_AT, "params")):
        found.add((*_AT, "params"), "is required", [{"parameterName": "learning-rate", "type": "DOUBLE"}])
    if spec.enable_trial_early_stopping:
        field = found.path((*_AT, "enableTrialEarlyStopping"))
        substitutions.append(Substitution(field, "true", "false", NOT_STOPPED))
    if spec.resume_previous_job_id is not None and not JOB_ID.fullmatch(spec.resume_previous_job_id):
        at = (*_AT, "resumePreviousJobId")
        found.add(at, f"must be the id of a tuning job, not {given(spec.resume_previous_job_id)}", "digits_tuning_1")
    parameters = parameters_of([_asked(each, index, found) for index, each in enumerate(spec.params or ())], found)
    _check_grid(spec, found)
    check_size(parameters, spec.max_trials or 1, (*_AT, "maxTrials"), found)
    return Tuning(
        parameters=parameters,
        goal=Goal(spec.goal or Goal.MAXIMIZE),
        algorithm=Algorithm(spec.algorithm or Algorithm.BAYESIAN),
        metric_tag=spec.hyperparameter_metric_tag or METRIC_TAG_DEFAULT,
        max_trials=check_count(spec.max_trials, (*_AT, "maxTrials"), found) or 1,
        max_parallel=check_count(spec.max_parallel_trials, (*_AT, "maxParallelTrials"), found) or 1,
        max_failed=check_count(spec.max_failed_trials, (*_AT, "maxFailedTrials"), found),
        resumes=spec.resume_previous_job_id,
    )


def _check_grid(spec: HyperparameterSpec, found: Findings) -> None:
    for index, each in enumerate(spec.params or ()):
        if each.type == "DOUBLE" and spec.algorithm == "GRID_SEARCH":
            problem = "of DOUBLE has values without end, which GRID_SEARCH cannot try all of"
            found.add((*_AT, "params", index, "type"), problem, "DISCRETE")


def _asked(spec: ParameterSpec, index: int, found: Findings) -> Asked:
    at: Loc = (*_AT, "params", index)
    scale = None if spec.scale_type == "NONE" else spec.scale_type
    if spec.type is None:
        found.add((*at, "type"), "is required", "DOUBLE")
    said = {
        "minValue": spec.min_value,
        "maxValue": spec.max_value,
        "categoricalValues": spec.categorical_values,
        "discreteValues": spec.discrete_values,
        "scaleType": scale,
    }
    for name, types in _FIELDS.items():
        if spec.type is not None and spec.type not in types and said[name]:
            found.add_text((*at, name), f"is not for parameters of type {spec.type}", "leave it out")
    values = "categoricalValues" if spec.type == "CATEGORICAL" else "discreteValues"
    return Asked(
        name=spec.parameter_name,
        kind=None if spec.type is None else ParameterKind(spec.type),
        at=Places((*at, "parameterName"), (*at, "minValue"), (*at, "maxValue"), (*at, values), (*at, "scaleType")),
        low=spec.min_value,
        high=spec.max_value,
        categories=(spec.categorical_values or ()) if spec.type == "CATEGORICAL" else (),
        numbers=(spec.discrete_values or ()) if spec.type == "DISCRETE" else (),
        scale=scale,
    )
