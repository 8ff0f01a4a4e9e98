"""A Vertex AI HyperparameterTuningJob's study → what may be tried, or what is wrong with it."""

from __future__ import annotations

from typing import Final

from shared.core.model.job import Substitution
from shared.core.model.tuning import Algorithm, Goal, ParameterKind, Tuning
from shared.jobspec.fields.programs import require
from shared.jobspec.fields.tuning_parameters import Asked, Places, check_count, check_size, parameters_of
from shared.jobspec.formats.vertex_study import StudyMetric, StudyParameter, StudySpec, TuningJob
from shared.jobspec.reading.problems import Findings, Loc
from shared.jobspec.resolve.hyperparameters import NOT_STOPPED

_AT: Final[Loc] = ("studySpec",)
_KINDS: Final = {
    "doubleValueSpec": ParameterKind.DOUBLE,
    "integerValueSpec": ParameterKind.INTEGER,
    "categoricalValueSpec": ParameterKind.CATEGORICAL,
    "discreteValueSpec": ParameterKind.DISCRETE,
}


def tuning_of(job: TuningJob, found: Findings, substitutions: list[Substitution]) -> Tuning:
    study = job.study_spec or StudySpec.model_validate({})
    for name, value in (("maxTrialCount", job.max_trial_count), ("parallelTrialCount", job.parallel_trial_count)):
        require(value, (name,), found)
    if not study.parameters and not found.doubtful((*_AT, "parameters")):
        require(None, (*_AT, "parameters"), found)
    _note_what_is_otherwise(study, found, substitutions)
    parameters = parameters_of([_asked(each, index, found) for index, each in enumerate(study.parameters or ())], found)
    for index, each in enumerate(study.parameters or ()):
        if each.double_value_spec is not None and study.algorithm == "GRID_SEARCH":
            problem = "has values without end, which GRID_SEARCH cannot try all of"
            found.add_text((*_AT, "parameters", index, "doubleValueSpec"), problem, "discreteValueSpec")
    check_size(parameters, job.max_trial_count or 1, ("maxTrialCount",), found)
    metric = _metric(study, found)
    return Tuning(
        parameters=parameters,
        goal=Goal(metric.goal or Goal.MAXIMIZE),
        algorithm=Algorithm(study.algorithm or Algorithm.BAYESIAN),
        metric_tag=metric.metric_id or "",
        max_trials=check_count(job.max_trial_count, ("maxTrialCount",), found),
        max_parallel=check_count(job.parallel_trial_count, ("parallelTrialCount",), found),
        max_failed=check_count(job.max_failed_trial_count, ("maxFailedTrialCount",), found),
    )


def _metric(study: StudySpec, found: Findings) -> StudyMetric:
    at, metrics = (*_AT, "metrics"), study.metrics or ()
    if not metrics:
        if not found.doubtful(at):
            require(None, at, found)
        return StudyMetric.model_validate({})
    if len(metrics) > 1:
        found.add_text(at, f"has {len(metrics)} metrics: trials are compared by one", "one metric")
    require(metrics[0].metric_id, (*at, 0, "metricId"), found)
    return metrics[0]


def _note_what_is_otherwise(study: StudySpec, found: Findings, substitutions: list[Substitution]) -> None:
    said = {
        "decayCurveStoppingSpec": study.decay_curve_stopping_spec,
        "medianAutomatedStoppingSpec": study.median_automated_stopping_spec,
        "convexAutomatedStoppingSpec": study.convex_automated_stopping_spec,
    }
    substitutions += [
        Substitution(found.path((*_AT, name)), "given", "none", NOT_STOPPED)
        for name, value in said.items()
        if value is not None
    ]
    if study.measurement_selection_type == "BEST_MEASUREMENT":
        field, why = (
            found.path((*_AT, "measurementSelectionType")),
            "a trial's metric is what its program reported last",
        )
        substitutions.append(Substitution(field, "BEST_MEASUREMENT", "LAST_MEASUREMENT", why))


def _asked(spec: StudyParameter, index: int, found: Findings) -> Asked:
    at: Loc = (*_AT, "parameters", index)
    said = {
        "doubleValueSpec": spec.double_value_spec,
        "integerValueSpec": spec.integer_value_spec,
        "categoricalValueSpec": spec.categorical_value_spec,
        "discreteValueSpec": spec.discrete_value_spec,
    }
    named = [name for name, value in said.items() if value is not None]
    if len(named) != 1 and not found.doubtful(at):
        problem = f"has {' and '.join(named) or 'no values to try'}: it needs one of {', '.join(_KINDS)}"
        found.add_text(at, problem, "doubleValueSpec: {minValue: 0.0001, maxValue: 0.1}")
    inner = named[0] if len(named) == 1 else "doubleValueSpec"
    within: Loc = (*at, inner)
    limits = spec.double_value_spec if inner == "doubleValueSpec" else spec.integer_value_spec
    if inner == "categoricalValueSpec" and spec.scale_type is not None:
        found.add_text((*at, "scaleType"), "is not for categories", "leave it out")
    return Asked(
        name=spec.parameter_id,
        kind=_KINDS[inner] if len(named) == 1 else None,
        at=Places(
            (*at, "parameterId"), (*within, "minValue"), (*within, "maxValue"), (*within, "values"), (*at, "scaleType")
        ),
        low=limits.min_value if limits else None,
        high=limits.max_value if limits else None,
        categories=(spec.categorical_value_spec.values or ()) if spec.categorical_value_spec else (),
        numbers=(spec.discrete_value_spec.values or ()) if spec.discrete_value_spec else (),
        scale=spec.scale_type,
    )
