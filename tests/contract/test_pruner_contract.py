"""Early stopping with Optuna: which running trials are given up, and what the ledger
says about it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.tuning_jobs import RATE
from trainmaster.core.model.tuning import Goal, Measurement, StoppingRule, Trial, TrialState, Tuning
from trainmaster.suggesters.optuna_pruners import COMPLETED_MIN
from trainmaster.suggesters.optuna_suggester import OptunaSuggester

suggester = OptunaSuggester()

RISING = (0.2, 0.4, 0.6, 0.8)


def curve(values: Sequence[float], every: int = 100) -> tuple[Measurement, ...]:
    return tuple(Measurement(value, every * number) for number, value in enumerate(values, start=1))


def completed(number: int, values: Sequence[float], every: int = 100) -> Trial:
    points = curve(values, every)
    return Trial(
        number,
        ("0.01",),
        TrialState.SUCCEEDED,
        started_at=None,
        ended_at=None,
        measurement=points[-1],
        reported=points[:-1],
    )


def a_study(
    running: Sequence[float], rule: StoppingRule = StoppingRule.MEDIAN, **changes: object
) -> Tuning:
    """Return a study of eight completed trials, and of trial 9, which runs and has reported these
    values.

    Completed trial N reported the values of `RISING`, each greater by N/100.
    """
    done = [completed(number, [value + number / 100 for value in RISING]) for number in range(1, 9)]
    trial = Trial(9, ("0.02",), TrialState.RUNNING, reported=curve(running))
    study = Tuning(
        (RATE,), metric_tag="accuracy", max_trials=20, trials=(*done, trial), stopping=rule
    )
    return replace(study, **changes)  # type: ignore[arg-type]


def test_trial_below_the_median_of_the_means_is_given_up_with_the_values() -> None:
    """The mean of the first two values of trial N is 0.3 + N/100."""
    text = suggester.find_unpromising(a_study([0.1, 0.2]))[9]
    assert (
        text
        == "its best accuracy up to step 200 is 0.2, worse than 0.345, the median of the means of 8"
        " completed trials up to this step"
    )


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(a_study([0.1, 0.5]), id="better than the median"),
        pytest.param(a_study([0.6, 0.2]), id="was better once"),
        pytest.param(a_study([]), id="nothing reported"),
        pytest.param(a_study([0.1, 0.2], StoppingRule.NONE), id="no rule"),
        pytest.param(a_study([0.3], StoppingRule.WORST_QUARTER), id="not in the worst quarter"),
        pytest.param(a_study([0.5, 0.4, 0.3], goal=Goal.MAXIMIZE), id="falling, but good"),
    ],
)
def test_trial_that_may_still_win_is_kept(study: Tuning) -> None:
    assert suggester.find_unpromising(study) == {}


def test_small_values_are_better_where_the_goal_is_to_minimize() -> None:
    assert suggester.find_unpromising(a_study([0.1, 0.2], goal=Goal.MINIMIZE)) == {}
    assert set(suggester.find_unpromising(a_study([0.9, 0.8], goal=Goal.MINIMIZE))) == {9}


def test_trial_of_the_worst_quarter_is_given_up() -> None:
    text = suggester.find_unpromising(a_study([0.1, 0.2], StoppingRule.WORST_QUARTER))[9]
    assert "worse than 0.4275, the worst quarter's limit of 8 completed trials" in text


def test_no_trial_is_given_up_before_enough_have_completed() -> None:
    study = a_study([0.01, 0.01])
    few = (*study.trials[: COMPLETED_MIN - 1], study.trials[-1])
    assert suggester.find_unpromising(replace(study, trials=few)) == {}
    assert suggester.find_unpromising(
        replace(study, trials=(*study.trials[:COMPLETED_MIN], study.trials[-1]))
    )


def test_trials_that_report_at_other_steps_are_compared() -> None:
    study = a_study([0.1])
    others = tuple(
        completed(number, [value + 0.01 for value in RISING], every=37) for number in range(1, 7)
    )
    assert set(suggester.find_unpromising(replace(study, trials=(*others, study.trials[-1])))) == {
        9
    }


def test_program_that_reports_no_step_is_kept() -> None:
    study = a_study([])
    trial = replace(study.trials[-1], reported=(Measurement(value=0.001, step=0),))
    assert suggester.find_unpromising(replace(study, trials=(*study.trials[:-1], trial))) == {}


def test_suggestions_continue_after_a_trial_was_stopped_early() -> None:
    study = a_study([0.1])
    stopped = replace(
        study.trials[-1], state=TrialState.STOPPED, measurement=Measurement(value=0.1, step=100)
    )
    study = replace(study, trials=(*study.trials[:-1], stopped))
    values = suggester.suggest(study, "a")
    assert values == suggester.suggest(study, "a")
    assert 1e-4 <= float(values[0]) <= 0.1


def test_stopping_saves_steps_without_losing_the_best_trial() -> None:
    """Trials approach their own limit.

    Good ones are never stopped; most bad ones are stopped after a few steps.
    """
    rng = random.Random(7)  # noqa: S311 - reproducible randomness is the purpose
    limits = [rng.random() for _ in range(40)]
    study = Tuning((RATE,), metric_tag="accuracy", max_trials=40, stopping=StoppingRule.MEDIAN)
    steps = 0
    for number, limit in enumerate(limits, start=1):
        values = [limit * (1 - 0.5**step) for step in range(1, 21)]
        trial = Trial(number, ("0.01",), TrialState.RUNNING)
        for step in range(1, 21):
            steps += 1
            trial = replace(trial, reported=curve(values[:step]))
            if suggester.find_unpromising(replace(study, trials=(*study.trials, trial))):
                trial = replace(trial, state=TrialState.STOPPED, measurement=trial.reported[-1])
                break
        else:
            trial = replace(trial, state=TrialState.SUCCEEDED, measurement=trial.reported[-1])
        study = replace(study, trials=(*study.trials, trial))
    assert study.best_first()[0].number == limits.index(max(limits)) + 1
    assert steps < 0.75 * 40 * 20
