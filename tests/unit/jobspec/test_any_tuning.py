"""Any tuning job, in either format, is a study for which Optuna can suggest values, or has a list
of problems.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.jobspec.bodies import MINIMAL
from tests.unit.jobspec.test_any_document import ANYTHING, SCALARS
from trainmaster.core.model.search_space import Parameter, ParameterKind
from trainmaster.core.model.tuning import Goal, Measurement, Trial, TrialState
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.formats.ai_platform import ScaleType
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.suggesters.optuna_suggester import OptunaSuggester

ALGORITHMS = ("GRID_SEARCH", "RANDOM_SEARCH")
NUMBERS = (
    st.sampled_from((0, 1, 2, -1, 0.5, 1e-5, 1e300, "3", "0.25", 2**60))
    | st.floats(-1e6, 1e6)
    | SCALARS
)
NAMES = st.sampled_from(("a", "b", "learning-rate", "--x", "")) | st.text(max_size=5)
LISTS = st.lists(st.sampled_from(("adam", "sgd", "", "1")) | SCALARS, max_size=4)
FIGURES = st.lists(st.integers(1, 9), max_size=4, unique=True).map(sorted) | st.lists(
    NUMBERS, max_size=3
)
COUNTS = st.integers(-1, 1100) | st.sampled_from(("4", None, 0))
PARAMS = st.lists(
    st.fixed_dictionaries(
        {"parameterName": NAMES, "type": st.sampled_from((*ParameterKind, "discrete", None))},
        optional={
            "minValue": NUMBERS,
            "maxValue": NUMBERS,
            "categoricalValues": LISTS,
            "discreteValues": FIGURES,
            "scaleType": st.sampled_from((*ScaleType, None)),
        },
    ),
    max_size=3,
)
HYPERPARAMETERS = st.fixed_dictionaries(
    {"params": PARAMS},
    optional={
        "goal": st.sampled_from((*Goal, "goal_type_unspecified")),
        "algorithm": st.sampled_from((*ALGORITHMS, "grid_search", None)),
        "maxTrials": COUNTS,
        "maxParallelTrials": COUNTS,
        "maxFailedTrials": COUNTS,
        "hyperparameterMetricTag": NAMES,
        "enableTrialEarlyStopping": st.booleans(),
    },
)
RANGE = st.fixed_dictionaries(
    {}, optional={"minValue": NUMBERS, "maxValue": NUMBERS, "defaultValue": NUMBERS}
)
STUDIES = st.fixed_dictionaries(
    {
        "metrics": st.just([{"metricId": "accuracy"}]) | ANYTHING,
        "parameters": st.lists(
            st.fixed_dictionaries(
                {"parameterId": NAMES},
                optional={
                    "doubleValueSpec": RANGE,
                    "integerValueSpec": RANGE,
                    "categoricalValueSpec": st.fixed_dictionaries({"values": LISTS}),
                    "discreteValueSpec": st.fixed_dictionaries({"values": FIGURES}),
                    "scaleType": st.sampled_from((*tuple(ScaleType)[1:], None)),
                },
            ),
            max_size=3,
        ),
    },
    optional={"algorithm": st.sampled_from(ALGORITHMS)},
)
POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "i"},
}
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))

suggester = OptunaSuggester()


FINITE = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 6))
POSITIVE = st.floats(1e-6, 1e9, allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
TWO: Final[dict[str, Any]] = {"min_size": 2, "max_size": 2}
MANY: Final[dict[str, Any]] = {"min_size": 1, "max_size": 4}
SCALED = st.sampled_from(ScaleType)
SPACES = (
    st.tuples(
        st.just("DOUBLE"), st.lists(FINITE, **TWO).map(sorted), st.sampled_from((None, "NONE"))
    )
    | st.tuples(st.just("DOUBLE"), st.lists(st.floats(-1e300, 1e300), **TWO).map(sorted), st.none())
    | st.tuples(st.just("DOUBLE"), st.lists(POSITIVE, **TWO).map(sorted), SCALED)
    | st.tuples(
        st.just("INTEGER"), st.lists(st.integers(-(2**53), 2**53), **TWO).map(sorted), st.none()
    )
    | st.tuples(st.just("INTEGER"), st.lists(st.integers(1, 2**53), **TWO).map(sorted), SCALED)
    | st.tuples(st.just("CATEGORICAL"), st.lists(TEXT, unique=True, **MANY), st.none())
    | st.tuples(st.just("DISCRETE"), st.lists(POSITIVE, unique=True, **MANY).map(sorted), SCALED)
)
VALID_SPACES = st.lists(SPACES, min_size=1, max_size=4)
"""Type, values or limits, and scale of each parameter."""


def a_param(index: int, kind: str, values: list[object], scale: str | None) -> dict[str, object]:
    if kind == "CATEGORICAL":
        within: dict[str, object] = {"categoricalValues": values}
    elif kind == "DISCRETE":
        within = {"discreteValues": values}
    else:
        within = {"minValue": values[0], "maxValue": values[1]}
    return {"parameterName": f"p{index}", "type": kind, "scaleType": scale, **within}


def a_study_parameter(
    index: int, kind: str, values: list[object], scale: str | None
) -> dict[str, object]:
    is_range = kind in ("DOUBLE", "INTEGER")
    within = {"minValue": values[0], "maxValue": values[1]} if is_range else {"values": values}
    shown = {"scaleType": scale} if scale not in (None, "NONE") else {}
    return {"parameterId": f"p{index}", f"{kind.lower()}ValueSpec": within, **shown}


def a_training(hyperparameters: object) -> dict[str, object]:
    return {"jobId": "a", "trainingInput": {**MINIMAL, "hyperparameters": hyperparameters}}


def a_tuning_job(study: object, trials: object, parallel: object) -> dict[str, object]:
    return {
        "displayName": "a",
        "studySpec": study,
        "maxTrialCount": trials,
        "parallelTrialCount": parallel,
        "trialJobSpec": {"workerPoolSpecs": [POOL]},
        "trainmaster": {"region": "us-central1"},
    }


def is_resolved_or_refused(document: dict[str, object]) -> bool:
    """Return True if the document is accepted, or refused with complete problems."""
    try:
        return accept(document, default_job_id="a").spec_json != ""
    except InvalidJob as invalid:
        problems = invalid.problems
        return bool(problems) and all(
            problem.field and problem.problem and problem.example for problem in problems
        )


@QUICK
@given(HYPERPARAMETERS | ANYTHING)
def test_any_hyperparameters_are_resolved_or_refused(hyperparameters: object) -> None:
    assert is_resolved_or_refused(a_training(hyperparameters))


@QUICK
@given(STUDIES | ANYTHING, COUNTS, COUNTS)
def test_any_study_is_resolved_or_refused(study: object, trials: object, parallel: object) -> None:
    assert is_resolved_or_refused(a_tuning_job(study, trials, parallel))


@QUICK
@given(
    VALID_SPACES, st.sampled_from(("ALGORITHM_UNSPECIFIED", "RANDOM_SEARCH")), st.integers(1, 1000)
)
def test_valid_parameters_resolve_equally_in_both_formats_and_can_be_suggested(
    spaces: list[tuple[str, list[object], str | None]], algorithm: str, trials: int
) -> None:
    params = [a_param(index, *space) for index, space in enumerate(spaces)]
    hyperparameters = {
        "params": params,
        "algorithm": algorithm,
        "maxTrials": trials,
        "hyperparameterMetricTag": "m",
    }
    tuning = accept(a_training(hyperparameters), default_job_id=None).tuning
    parameters = [a_study_parameter(index, *space) for index, space in enumerate(spaces)]
    study = {"parameters": parameters, "algorithm": algorithm, "metrics": [{"metricId": "m"}]}
    assert accept(a_tuning_job(study, trials, 1), default_job_id=None).tuning == tuning
    assert tuning is not None
    for number in range(3):
        values = suggester.suggest(tuning, f"a-trial-{number}")
        assert all(map(is_within, tuning.parameters, values)), values
        trial = Trial(
            number + 1, values, TrialState.SUCCEEDED, measurement=Measurement(float(number))
        )
        tuning = replace(tuning, trials=(*tuning.trials, trial))


def is_within(parameter: Parameter, text: str) -> bool:
    if parameter.kind in (ParameterKind.CATEGORICAL, ParameterKind.DISCRETE):
        return text in parameter.choices
    return parameter.low <= float(text) <= parameter.high
