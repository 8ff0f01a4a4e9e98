"""Resolve the study of a Vertex AI HyperparameterTuningJob to a tuning."""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.search_space import ParameterKind
from trainmaster.core.model.tuning import Algorithm, Goal, StoppingRule, Tuning
from trainmaster.jobspec.fields.programs import require
from trainmaster.jobspec.fields.tuning_parameters import (
    RESUMED,
    ParameterPaths,
    ParameterRequest,
    check_size,
    resolve_parameters,
    resolve_resumed_job,
)
from trainmaster.jobspec.formats.vertex_study import (
    MeasurementSelection,
    StudyMetric,
    StudyParameter,
    StudySpec,
    VertexTuningJob,
)
from trainmaster.jobspec.problems import FieldPath, Problems

_PATH: Final[FieldPath] = ("studySpec",)
# Why the rules that predict the final value of a trial are replaced.
NO_PREDICTION: Final = (
    "a trial is stopped if its best value is in the worst quarter of the completed trials' values"
)
_KINDS: Final = {
    "doubleValueSpec": ParameterKind.DOUBLE,
    "integerValueSpec": ParameterKind.INTEGER,
    "categoricalValueSpec": ParameterKind.CATEGORICAL,
    "discreteValueSpec": ParameterKind.DISCRETE,
}


def resolve_study(job: VertexTuningJob, problems: Problems) -> Tuning:
    """Return the tuning that the study describes, and add its problems to `problems`."""
    study = job.study_spec
    if not study.parameters and not problems.has_any_at((*_PATH, "parameters")):
        require(None, (*_PATH, "parameters"), problems)
    _note_ignored_fields(study, problems)
    requests = [
        _request_parameter(parameter, index, problems)
        for index, parameter in enumerate(study.parameters)
    ]
    parameters = resolve_parameters(requests, problems)
    for index, parameter in enumerate(study.parameters):
        if parameter.double_value_spec is not None and study.algorithm is Algorithm.GRID_SEARCH:
            problem = (
                "cannot be set for GRID_SEARCH, which tries every value: a range of real numbers"
                " has no end"
            )
            problems.add_text(
                (*_PATH, "parameters", index, "doubleValueSpec"),
                problem,
                advice="discreteValueSpec",
            )
    check_size(parameters, job.max_trial_count or 1, ("maxTrialCount",), problems)
    metric = _resolve_metric(study, problems)
    return Tuning(
        parameters=parameters,
        goal=metric.goal or Goal.MAXIMIZE,
        algorithm=study.algorithm or Algorithm.BAYESIAN,
        metric_tag=metric.metric_id or "",
        # Source: gcloud sends 1 for counts that its file lacks.
        max_trials=job.max_trial_count or 1,
        max_parallel=job.parallel_trial_count or 1,
        max_failed=job.max_failed_trial_count or 0,
        resumes=resolve_resumed_job(job.trainmaster.resume_previous_job_id, RESUMED, problems),
        stopping=_resolve_stopping(study, problems),
    )


def _resolve_metric(study: StudySpec, problems: Problems) -> StudyMetric:
    """Return the metric by which trials are compared; an empty one if the study has none."""
    path = (*_PATH, "metrics")
    metrics = study.metrics
    if not metrics:
        if not problems.has_any_at(path):
            require(None, path, problems)
        return StudyMetric()
    if len(metrics) > 1:
        problems.add_text(
            path,
            f"has {len(metrics)} metrics; trials are compared by one metric",
            advice="one metric",
        )
    first, *_ = metrics
    require(first.metric_id, (*path, 0, "metricId"), problems)
    return first


def _resolve_stopping(study: StudySpec, problems: Problems) -> StoppingRule:
    """Return the rule that stops trials early. Only the median rule is AI Platform Training's."""
    specs = {
        "medianAutomatedStoppingSpec": study.median_automated_stopping_spec,
        "decayCurveStoppingSpec": study.decay_curve_stopping_spec,
        "convexAutomatedStoppingSpec": study.convex_automated_stopping_spec,
    }
    given = [name for name, spec in specs.items() if spec is not None]
    if not given:
        return StoppingRule.NONE
    name, *others = given
    for other in others:
        problems.add_text(
            (*_PATH, other),
            f"cannot be combined with {name}: a study has one rule",
            advice="one of them",
        )
    is_median = name == "medianAutomatedStoppingSpec"
    if not is_median:
        problems.substitute(
            (*_PATH, name), "a prediction of the final value", "the worst quarter", NO_PREDICTION
        )
    spec = specs[name] or {}
    for by_time in ("useElapsedDuration", "use_elapsed_duration"):
        if spec.get(by_time):
            reason = "trials are compared at the same step"
            problems.substitute((*_PATH, name, by_time), "true", "false", reason)
            break
    return StoppingRule.MEDIAN if is_median else StoppingRule.WORST_QUARTER


def _note_ignored_fields(study: StudySpec, problems: Problems) -> None:
    """Add a substitution for each given field that has no effect."""
    if study.measurement_selection_type is MeasurementSelection.BEST_MEASUREMENT:
        reason = "a trial's metric is the one that its program reported last"
        problems.substitute(
            (*_PATH, "measurementSelectionType"), "BEST_MEASUREMENT", "LAST_MEASUREMENT", reason
        )


def _request_parameter(spec: StudyParameter, index: int, problems: Problems) -> ParameterRequest:
    path: FieldPath = (*_PATH, "parameters", index)
    value_specs = {
        "doubleValueSpec": spec.double_value_spec,
        "integerValueSpec": spec.integer_value_spec,
        "categoricalValueSpec": spec.categorical_value_spec,
        "discreteValueSpec": spec.discrete_value_spec,
    }
    given = [name for name, value in value_specs.items() if value is not None]
    if len(given) != 1 and not problems.has_any_at(path):
        problem = (
            f"has {' and '.join(given) or 'no values to try'}; it needs exactly one of"
            f" {', '.join(_KINDS)}"
        )
        problems.add_text(
            path, problem, advice="doubleValueSpec: {minValue: 0.0001, maxValue: 0.1}"
        )
    name = given[0] if len(given) == 1 else "doubleValueSpec"
    values_path: FieldPath = (*path, name)
    limits = spec.double_value_spec if name == "doubleValueSpec" else spec.integer_value_spec
    if name == "categoricalValueSpec" and spec.scale_type is not None:
        problems.add_text(
            (*path, "scaleType"), "cannot be set for categories", advice="leave it out"
        )
    return ParameterRequest(
        name=spec.parameter_id,
        kind=_KINDS[name] if len(given) == 1 else None,
        paths=ParameterPaths(
            name=(*path, "parameterId"),
            low=(*values_path, "minValue"),
            high=(*values_path, "maxValue"),
            values=(*values_path, "values"),
            scale=(*path, "scaleType"),
        ),
        low=limits.min_value if limits else None,
        high=limits.max_value if limits else None,
        categories=spec.categorical_value_spec.values if spec.categorical_value_spec else (),
        numbers=spec.discrete_value_spec.values if spec.discrete_value_spec else (),
        scale=spec.scale_type,
    )
