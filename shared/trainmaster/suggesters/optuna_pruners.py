"""Which running trials are unpromising, by Optuna's pruners.

Optuna compares trials that report at the same steps. Here programs report when they like, and what
they report is thinned out. Each completed trial therefore gets one value at the latest step of each
running trial:

| rule          | pruner                 | value of a completed trial at step S |
| ------------- | ---------------------- | ------------------------------------ |
| MEDIAN        | MedianPruner           | mean of its values up to S           |
| WORST_QUARTER | PercentilePruner(75 %) | best of its values up to S           |

A running trial is compared by its best value up to S. Source of the median rule: Vertex AI,
MedianAutomatedStoppingSpec.
Programs that report no step are never stopped early: their values cannot be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import optuna
from optuna.pruners import MedianPruner, PercentilePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainmaster.core.model.learning_curve import best_until, mean_until
from trainmaster.core.model.tuning import Goal, Measurement, StoppingRule, Trial, Tuning
from trainmaster.core.model.tuning import TrialState as State

COMPLETED_MIN: Final = 5
"""Completed trials with measurements before any trial is stopped early.

Source: Optuna's default.
"""
KEPT_PERCENT: Final = 75.0
"""Share of the completed trials that are better than a trial of the worst quarter."""


def find_unpromising(tuning: Tuning) -> Mapping[int, str]:
    """See `trainmaster.ports.Suggester`."""
    running = [
        trial
        for trial in tuning.trials
        if trial.state is State.RUNNING and trial.reported and trial.reported[-1].step > 0
    ]
    completed = [
        curve for trial in tuning.of_state(State.SUCCEEDED) if (curve := _whole_curve(trial))
    ]
    if tuning.stopping is StoppingRule.NONE or not running or len(completed) < COMPLETED_MIN:
        return {}
    steps = sorted({trial.reported[-1].step for trial in running})
    study = _study(tuning, completed, steps)
    pruner = _pruner(tuning.stopping)
    return {
        trial.number: _compare(tuning, trial, completed)
        for trial in running
        if pruner.prune(study, _running_trial(trial))
    }


def direction_of(goal: Goal) -> StudyDirection:
    return StudyDirection.MAXIMIZE if goal is Goal.MAXIMIZE else StudyDirection.MINIMIZE


def _pruner(rule: StoppingRule) -> PercentilePruner:
    if rule is StoppingRule.MEDIAN:
        return MedianPruner(n_startup_trials=COMPLETED_MIN)
    return PercentilePruner(KEPT_PERCENT, n_startup_trials=COMPLETED_MIN)


def _study(
    tuning: Tuning, completed: Sequence[Sequence[Measurement]], steps: Sequence[int]
) -> optuna.Study:
    """Return an Optuna study of the completed trials, each with its values at these steps."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=direction_of(tuning.goal))
    study.add_trials(
        create_trial(
            state=TrialState.COMPLETE,
            value=curve[-1].value,
            intermediate_values={
                step: value
                for step in steps
                if (value := _value_at(tuning, curve, step)) is not None
            },
        )
        for curve in completed
    )
    return study


def _running_trial(trial: Trial) -> FrozenTrial:
    values = {point.step: point.value for point in trial.reported}
    return create_trial(state=TrialState.RUNNING, intermediate_values=values)


def _whole_curve(trial: Trial) -> tuple[Measurement, ...]:
    """Return the measurements of a trial that has ended, the final one included."""
    final = trial.measurement
    if final is None:
        return ()
    return (*(point for point in trial.reported if point.step < final.step), final)


def _value_at(tuning: Tuning, curve: Sequence[Measurement], step: int) -> float | None:
    if tuning.stopping is StoppingRule.MEDIAN:
        return mean_until(curve, step)
    return best_until(curve, step, maximize=tuning.goal is Goal.MAXIMIZE)


def _compare(tuning: Tuning, trial: Trial, completed: Sequence[Sequence[Measurement]]) -> str:
    """Return the values that were compared, in words."""
    step = trial.reported[-1].step
    best = best_until(trial.reported, step, maximize=tuning.goal is Goal.MAXIMIZE)
    others = [value for curve in completed if (value := _value_at(tuning, curve, step)) is not None]
    if tuning.stopping is StoppingRule.MEDIAN:
        limit, words = statistics.median(others), "the median of the means"
    else:
        is_low = tuning.goal is Goal.MAXIMIZE
        limit, words = _quartile(others, is_low=is_low), "the worst quarter's limit"
    return (
        f"its best {tuning.metric_tag} up to step {step} is {best:g}, worse than {limit:g}, "
        f"{words} of {len(others)} completed trials up to this step"
    )


def _quartile(values: Sequence[float], *, is_low: bool) -> float:
    if len(values) == 1:
        return values[0]
    quartiles = statistics.quantiles(values, method="inclusive")
    return quartiles[0] if is_low else quartiles[-1]
