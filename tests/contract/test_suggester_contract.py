"""The Suggester's contract on Optuna: values within bounds, repeatable, none twice, and better than
chance.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from trainmaster.core.model.search_space import Parameter, ParameterKind, Scale
from trainmaster.core.model.tuning import (
    Algorithm,
    EarlierTrial,
    Goal,
    Measurement,
    Trial,
    TrialState,
    Tuning,
)
from trainmaster.suggesters.optuna_suggester import OptunaSuggester

K = ParameterKind
EVERY_KIND = (
    Parameter("rate", K.DOUBLE, low=1e-5, high=0.1, scale=Scale.LOG),
    Parameter("momentum", K.DOUBLE, low=0.02, high=0.5, scale=Scale.REVERSE_LOG),
    Parameter("shift", K.DOUBLE, low=-1.0, high=1.0),
    Parameter("fixed", K.DOUBLE, low=0.5, high=0.5),
    Parameter("units", K.INTEGER, low=-3, high=3),
    Parameter("width", K.INTEGER, low=1, high=1000, scale=Scale.LOG),
    Parameter("depth", K.INTEGER, low=1, high=8, scale=Scale.REVERSE_LOG),
    Parameter("optimizer", K.CATEGORICAL, choices=("adam", "sgd", "")),
    Parameter("batch", K.DISCRETE, choices=("16", "32", "64.5"), scale=Scale.LOG),
)
SMALL = (
    Parameter("layers", K.INTEGER, low=1, high=3),
    Parameter("optimizer", K.CATEGORICAL, choices=("adam", "sgd")),
)
CHOOSING = (Algorithm.BAYESIAN, Algorithm.RANDOM_SEARCH)

suggester = OptunaSuggester()


def after(
    tuning: Tuning, values: tuple[str, ...], value: float | None = None, *, live: bool = False
) -> Tuning:
    """Add a trial to the tuning job. It has ended, unless it is `live`."""
    state = TrialState.RUNNING if live else TrialState.SUCCEEDED
    measurement = None if value is None else Measurement(value)
    return replace(
        tuning,
        trials=(
            *tuning.trials,
            Trial(
                len(tuning.trials) + 1,
                values,
                state,
                started_at=None,
                ended_at=None,
                measurement=measurement,
            ),
        ),
    )


def is_within(parameter: Parameter, text: str) -> bool:
    if parameter.choices:
        return text in parameter.choices
    if parameter.kind is K.INTEGER:
        return parameter.low <= int(text) <= parameter.high
    return parameter.low <= float(text) <= parameter.high


@pytest.mark.parametrize("algorithm", CHOOSING)
def test_suggested_values_are_allowed_distinct_and_reproducible(algorithm: Algorithm) -> None:
    tuning = Tuning(EVERY_KIND, algorithm=algorithm, max_trials=30)
    for number in range(1, 26):
        values = suggester.suggest(tuning, f"digits_1-trial-{number}")
        assert values == suggester.suggest(tuning, f"digits_1-trial-{number}"), (
            "the same history gives the same values"
        )
        assert all(map(is_within, EVERY_KIND, values)), values
        tuning = after(tuning, values, number / 10 if number % 4 else None, live=number % 5 == 0)
    assert len({trial.values for trial in tuning.trials}) == 25


@pytest.mark.parametrize("algorithm", Algorithm)
def test_finite_space_is_tried_once_including_running_and_earlier_trials(
    algorithm: Algorithm,
) -> None:
    tuning = Tuning(
        SMALL, algorithm=algorithm, max_trials=10, earlier=(EarlierTrial(("2", "sgd"), 0.1),)
    )
    for number in range(1, 6):
        tuning = after(tuning, suggester.suggest(tuning, f"s-trial-{number}"), live=True)
    tried = {trial.values for trial in tuning.trials}
    assert len(tried) == 5
    assert ("2", "sgd") not in tried


def test_grid_search_goes_in_order_and_continues_after_earlier_trials() -> None:
    tuning = Tuning(SMALL, algorithm=Algorithm.GRID_SEARCH)
    assert suggester.suggest(tuning, "any") == ("1", "adam")
    tuning = after(after(tuning, ("1", "adam")), ("2", "adam"))
    assert suggester.suggest(tuning, "any") == ("1", "sgd")


@pytest.mark.parametrize("algorithm", CHOOSING)
def test_other_trials_and_other_jobs_get_other_values(algorithm: Algorithm) -> None:
    tuning = Tuning(EVERY_KIND[:3], algorithm=algorithm)
    assert (
        len({suggester.suggest(tuning, seed) for seed in ("a-trial-1", "a-trial-2", "b-trial-1")})
        == 3
    )


@pytest.mark.parametrize(
    ("scale", "middle"),
    [(Scale.LINEAR, 0.505), (Scale.LOG, 0.1), (Scale.REVERSE_LOG, 0.91)],
)
def test_suggested_values_are_spread_along_their_scale(scale: Scale, middle: float) -> None:
    """Half of the values are below the middle of the scale."""
    tuning = Tuning(
        (Parameter("p", K.DOUBLE, low=0.01, high=1.0, scale=scale),),
        algorithm=Algorithm.RANDOM_SEARCH,
    )
    values = [float(suggester.suggest(tuning, str(seed))[0]) for seed in range(200)]
    assert statistics.median(values) == pytest.approx(middle, rel=0.35)


def optimum(goal: Goal, algorithm: Algorithm, trials: int) -> float:
    """The distance of the best trial from the peak of a simple mountain (or the bottom
    of its pit).
    """
    tuning = Tuning(EVERY_KIND[:2], goal=goal, algorithm=algorithm, max_trials=trials)
    for number in range(1, trials + 1):
        values = suggester.suggest(tuning, f"m-trial-{number}")
        height = -((math.log10(float(values[0])) + 3) ** 2) - 4 * (float(values[1]) - 0.4) ** 2
        tuning = after(tuning, values, height if goal is Goal.MAXIMIZE else -height)
    best = tuning.best_first()[0].measurement
    assert best is not None
    return abs(best.value)


@pytest.mark.parametrize("goal", Goal)
def test_suggestions_improve_with_results(goal: Goal) -> None:
    assert optimum(goal, Algorithm.BAYESIAN, 40) < 0.01
    assert optimum(goal, Algorithm.BAYESIAN, 40) < optimum(goal, Algorithm.RANDOM_SEARCH, 40)


def test_results_of_a_previous_study_count_from_the_first_trial() -> None:
    tuning = Tuning((Parameter("p", K.DOUBLE, low=0.0, high=1.0),))
    earlier = tuple(EarlierTrial((str(nth / 20),), -abs(nth / 20 - 0.7)) for nth in range(21))
    near = [
        float(suggester.suggest(replace(tuning, earlier=earlier), str(seed))[0])
        for seed in range(10)
    ]
    assert statistics.median(abs(value - 0.7) for value in near) < 0.1


def test_failed_trials_and_trials_without_a_metric_are_ignored() -> None:
    tuning = Tuning(EVERY_KIND)
    for number, state in enumerate(
        (TrialState.FAILED, TrialState.CANCELLED, TrialState.SUCCEEDED), start=1
    ):
        trial = Trial(number, suggester.suggest(tuning, str(number)), state)
        tuning = replace(tuning, trials=(*tuning.trials, trial))
    assert all(map(is_within, EVERY_KIND, suggester.suggest(tuning, "next")))
