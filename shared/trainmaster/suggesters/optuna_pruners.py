"""Which running trials are unpromising, by Optuna's pruners.

Optuna compares trials that report at the same steps. Here programs report when they like, and what
they report is thinned out. Each completed trial therefore gets one value at the latest step of each
running trial:

| rule          | pruner                 | value of a completed trial at step S |
| ------------- | ---------------------- | ------------------------------------ |
| MEDIAN        | MedianPruner           | mean of its values up to S           |
| WORST_QUARTER | PercentilePruner(75 %) | best of its values up to S           |

A running trial is compared by its best value up to S. Source of the median rule: Vertex AI,
MedianAutomatedStoppingSpec. Programs that report no step are never stopped early: their values
cannot be compared.
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
    """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with the
    values that were compared, in words. Empty without such a rule.
    """
    running = [
        trial
        for trial in tuning.trials
        if trial.state is State.RUNNING and trial.reported and trial.reported[-1].step > 0
    ]
    curves = [_whole_curve(trial) for trial in tuning.of_state(State.SUCCEEDED)]
    completed = [curve for curve in curves if curve]
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
    for curve in completed:
        values: dict[int, float] = {}
        for step in steps:
            value = _value_at(tuning, curve, step)
            if value is not None:
                values[step] = value
        study.add_trial(
            create_trial(
                state=TrialState.COMPLETE, value=curve[-1].value, intermediate_values=values
            )
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
    before = [point for point in trial.reported if point.step < final.step]
    return (*before, final)


def _value_at(tuning: Tuning, curve: Sequence[Measurement], step: int) -> float | None:
    """Return the value of a completed trial at a step, by the table of this module; None if it has
    no value up to the step.
    """
    if tuning.stopping is StoppingRule.MEDIAN:
        return mean_until(curve, step)
    return best_until(curve, step, maximize=tuning.goal is Goal.MAXIMIZE)


def _compare(tuning: Tuning, trial: Trial, completed: Sequence[Sequence[Measurement]]) -> str:
    """Return the values that were compared, in words."""
    step = trial.reported[-1].step
    best = best_until(trial.reported, step, maximize=tuning.goal is Goal.MAXIMIZE)
    values = [_value_at(tuning, curve, step) for curve in completed]
    others = [value for value in values if value is not None]
    if tuning.stopping is StoppingRule.MEDIAN:
        limit = statistics.median(others)
        words = "the median of the means"
    else:
        limit = _quartile(others, is_low=tuning.goal is Goal.MAXIMIZE)
        words = "the worst quarter's limit"
    return (
        f"its best {tuning.metric_tag} up to step {step} is {best:g}, worse than {limit:g}, "
        f"{words} of {len(others)} completed trials up to this step"
    )


def _quartile(values: Sequence[float], *, is_low: bool) -> float:
    """Return the lower quartile of at least one value, or the upper one."""
    if len(values) == 1:
        return values[0]
    quartiles = statistics.quantiles(values, method="inclusive")
    return quartiles[0] if is_low else quartiles[-1]
