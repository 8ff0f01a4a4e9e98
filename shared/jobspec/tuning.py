"""`trainingInput.hyperparameters` → what may be tried, or what is wrong with it.

Source of names, defaults and rules: the discovery document of `ml` v1, HyperparameterSpec and ParameterSpec.
"""

from __future__ import annotations

import re
from typing import Final

from shared.core.jobs import Substitution
from shared.core.trials import TRIALS_MAX, Algorithm, Goal, Parameter, ParameterKind, Scale, Tuning, shown
from shared.jobspec.documents import TRAINING_INPUT
from shared.jobspec.ids import JOB_ID
from shared.jobspec.model import HyperparameterSpec, ParameterSpec, TrainingInput
from shared.jobspec.problems import Findings, Loc, given

METRIC_TAG_DEFAULT: Final = "training/hptuning/metric"
BYTES_MAX: Final = 400_000
"""Of all trials, as they are stored: with as many of an earlier study they fit one Firestore document of 1 MiB."""
TRIAL_BYTES: Final = 200
"""Of one, without its values: what its fields are called takes most of it."""
NUMBER_BYTES: Final = 25
DISCRETE_VALUES_MAX: Final = 1000
"""Source: the API's schema, `discreteValues`."""
INTEGER_MAX: Final = 2**53
"""Beyond that, a double (the API's type for the limits) skips integers."""

_AT: Final[Loc] = (TRAINING_INPUT, "hyperparameters")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_SCALES: Final = {
    None: Scale.LINEAR,
    "NONE": Scale.LINEAR,
    "UNIT_LINEAR_SCALE": Scale.LINEAR,
    "UNIT_LOG_SCALE": Scale.LOG,
    "UNIT_REVERSE_LOG_SCALE": Scale.REVERSE_LOG,
}
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
        substitutions.append(Substitution(field, "true", "false", "trials are not stopped early: each runs to its end"))
    if spec.resume_previous_job_id is not None and not JOB_ID.fullmatch(spec.resume_previous_job_id):
        at = (*_AT, "resumePreviousJobId")
        found.add(at, f"must be the id of a tuning job, not {given(spec.resume_previous_job_id)}", "digits_tuning_1")
    parameters = _parameters(spec, found)
    _check_size(parameters, spec.max_trials or 1, found)
    return Tuning(
        parameters=parameters,
        goal=Goal(spec.goal or Goal.MAXIMIZE),
        algorithm=Algorithm(spec.algorithm or Algorithm.BAYESIAN),
        metric_tag=spec.hyperparameter_metric_tag or METRIC_TAG_DEFAULT,
        max_trials=_count(spec.max_trials, "maxTrials", found) or 1,
        max_parallel=_count(spec.max_parallel_trials, "maxParallelTrials", found) or 1,
        max_failed=_count(spec.max_failed_trials, "maxFailedTrials", found),
        resumes=spec.resume_previous_job_id,
    )


def _count(given_count: int | None, name: str, found: Findings) -> int:
    if given_count is not None and not 0 <= given_count <= TRIALS_MAX:
        found.add((*_AT, name), f"must be from 1 to {TRIALS_MAX}, not {given_count}", 10)
    return given_count or 0


def _check_size(parameters: tuple[Parameter, ...], trials: int, found: Findings) -> None:
    """What is stored of a tuning job is one document."""
    longest = [max((len(text.encode()) for text in each.choices), default=NUMBER_BYTES) for each in parameters]
    most = BYTES_MAX // (TRIAL_BYTES + sum(longest))
    if trials > most:
        problem = f"is more than {most}, which is all that can be stored of trials with so many and so long values"
        found.add((*_AT, "maxTrials"), problem, most)


def _parameters(spec: HyperparameterSpec, found: Findings) -> tuple[Parameter, ...]:
    specs = spec.params or ()
    first: dict[str, int] = {}
    for index, each in enumerate(specs):
        at = (*_AT, "params", index)
        _check_name(each, (*at, "parameterName"), first, index, found)
        _check_fields(each, at, found)
        if each.type == "DOUBLE" and spec.algorithm == "GRID_SEARCH":
            problem = "of DOUBLE has values without end, which GRID_SEARCH cannot try all of"
            found.add((*at, "type"), problem, "DISCRETE")
    return tuple(_parameter(each) for each in specs if each.type is not None)


def _check_name(spec: ParameterSpec, at: Loc, first: dict[str, int], index: int, found: Findings) -> None:
    name = spec.parameter_name
    if name is None:
        found.add(at, "is required", "learning-rate")
    elif not _NAME.fullmatch(name):
        rule = "becomes the flag --NAME: letters, digits, _, - and ., a letter or _ first, at most 128"
        found.add(at, f"{rule}, unlike {given(name)}", re.sub(r"[^A-Za-z0-9_.-]+", "_", name.lstrip("-"))[:128] or "x")
    elif name in first:
        found.add(at, f"is that of params[{first[name]}], too", f"{name}_2")
    first.setdefault(name or "", index)


def _check_fields(spec: ParameterSpec, at: Loc, found: Findings) -> None:
    if spec.type is None:
        found.add((*at, "type"), "is required", "DOUBLE")
        return
    said = {
        "minValue": spec.min_value,
        "maxValue": spec.max_value,
        "categoricalValues": spec.categorical_values,
        "discreteValues": spec.discrete_values,
        "scaleType": None if spec.scale_type == "NONE" else spec.scale_type,
    }
    for name, types in _FIELDS.items():
        if spec.type not in types and said[name]:
            found.add_text((*at, name), f"is not for parameters of type {spec.type}", "leave it out")
    match spec.type:
        case "CATEGORICAL":
            _check_categories(spec.categorical_values or (), (*at, "categoricalValues"), found)
        case "DISCRETE":
            _check_discrete(spec, at, found)
        case _:
            _check_range(spec, at, found)


def _check_categories(values: tuple[str, ...], at: Loc, found: Findings) -> None:
    if not values and not found.doubtful(at):
        found.add(at, "is required", ["adam", "sgd"])
    elif len(values) > DISCRETE_VALUES_MAX:
        found.add_text(at, f"has {len(values)} values, more than {DISCRETE_VALUES_MAX}", "fewer of them")
    for index, value in enumerate(values):
        if value in values[:index]:
            found.add_text((*at, index), f"names {given(value)} again", "each value once")


def _check_discrete(spec: ParameterSpec, at: Loc, found: Findings) -> None:
    values, place = spec.discrete_values or (), (*at, "discreteValues")
    if not values:
        if not found.doubtful(place):
            found.add(place, "is required", [16, 32, 64])
    elif len(values) > DISCRETE_VALUES_MAX:
        found.add_text(place, f"has {len(values)} values, more than {DISCRETE_VALUES_MAX}", "fewer of them")
    elif list(values) != sorted(set(values)):
        found.add(place, "must be strictly increasing", [_as_written(value) for value in sorted(set(values))][:20])
    elif spec.scale_type in ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE") and values[0] <= 0:
        found.add((*at, "scaleType"), "takes values above 0, and the first is not", "UNIT_LINEAR_SCALE")


def _check_range(spec: ParameterSpec, at: Loc, found: Findings) -> None:
    low, high = spec.min_value, spec.max_value
    for name, value, example in (("minValue", low, 1), ("maxValue", high, 100)):
        if value is None:
            found.add((*at, name), f"is required for {spec.type}", example)
        elif spec.type == "INTEGER" and (value != int(value) or abs(value) > INTEGER_MAX):
            found.add((*at, name), f"must be a whole number for INTEGER, not {given(value)}", round(value))
    if low is None or high is None or found.doubtful((*at, "minValue"), (*at, "maxValue")):
        return
    if low > high:
        found.add((*at, "maxValue"), f"is below minValue, which is {shown(low)}", _as_written(low))
    elif spec.scale_type in ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE") and low <= 0:
        found.add((*at, "scaleType"), f"takes values above 0, and minValue is {shown(low)}", "UNIT_LINEAR_SCALE")


def _as_written(value: float) -> float:
    """As a person would write it."""
    return int(value) if value == int(value) else value


def _parameter(spec: ParameterSpec) -> Parameter:
    """Right where nothing was found, and a stand-in otherwise."""
    choices = spec.categorical_values or tuple(shown(value) for value in spec.discrete_values or ())
    return Parameter(
        name=spec.parameter_name or "",
        kind=ParameterKind(spec.type or ""),
        low=spec.min_value or 0.0,
        high=spec.max_value or 0.0,
        choices=choices,
        scale=_SCALES[spec.scale_type],
    )
