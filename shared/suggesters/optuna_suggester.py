"""The Suggester on Optuna, which only the function `tune` imports.

The study that Optuna sees is made anew for each suggestion, from what the ledger says: nothing is kept in between, and
the same trials and seed give the same values. Trials under way count as bad ones, so that those beside them look
elsewhere (TPE's constant liar).

| scale                  | Optuna sees                                                     |
| ---------------------- | --------------------------------------------------------------- |
| linear, log            | the value itself                                                |
| reverse log            | low + high - value, on a log scale: fine near the top           |
| DISCRETE               | the value's place in the list, whatever its scale               |
"""

from __future__ import annotations

import hashlib
import warnings
from itertools import count
from typing import Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from shared.core.model.tuning import Algorithm, Goal, Parameter, ParameterKind, Scale, Trial, Tuning, shown
from shared.core.model.tuning import TrialState as State

TRIES: Final = 16
"""Suggestions that were tried before, until one is taken from what is left."""

Values = tuple[str, ...]


class OptunaSuggester:
    """See `shared.ports.Suggester`."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        tried = {trial.values for trial in tuning.trials} | {past.values for past in tuning.earlier}
        if tuning.algorithm is Algorithm.GRID_SEARCH:
            return _untried(tuning, tried, 0)
        asked = (_ask(tuning, _number(f"{seed}/{nth}")) for nth in range(TRIES))
        found = next((values for values in asked if values not in tried), None)
        if found is not None or tuning.size is None:
            return found or _ask(tuning, _number(seed))
        return _untried(tuning, tried, _number(seed))


def _ask(tuning: Tuning, seed: int) -> Values:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direction = StudyDirection.MAXIMIZE if tuning.goal is Goal.MAXIMIZE else StudyDirection.MINIMIZE
    study = optuna.create_study(direction=direction, sampler=_sampler(tuning.algorithm, seed))
    distributions = {each.name: _distribution(each) for each in tuning.parameters}
    for past in tuning.earlier:
        study.add_trial(_frozen(tuning, past.values, distributions, TrialState.COMPLETE, past.value))
    for trial in tuning.trials:
        value = trial.measurement.value if trial.measurement else None
        study.add_trial(_frozen(tuning, trial.values, distributions, _state(trial), value))
    params = study.ask(distributions).params
    return tuple(_text(each, params[each.name]) for each in tuning.parameters)


def _sampler(algorithm: Algorithm, seed: int) -> BaseSampler:
    if algorithm is Algorithm.RANDOM_SEARCH:
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        # Both options are years old, and still called experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _state(trial: Trial) -> TrialState:
    if not trial.state.is_terminal:
        return TrialState.RUNNING
    is_known = trial.state is State.SUCCEEDED and trial.measurement is not None
    return TrialState.COMPLETE if is_known else TrialState.FAIL


def _frozen(
    tuning: Tuning, values: Values, distributions: dict[str, BaseDistribution], state: TrialState, value: float | None
) -> FrozenTrial:
    params = {each.name: _param(each, text) for each, text in zip(tuning.parameters, values, strict=True)}
    return create_trial(
        state=state,
        params=params,
        distributions=distributions,
        value=value if state is TrialState.COMPLETE else None,
    )


def _distribution(parameter: Parameter) -> BaseDistribution:
    is_log = parameter.scale is not Scale.LINEAR
    match parameter.kind:
        case ParameterKind.DOUBLE:
            return FloatDistribution(parameter.low, parameter.high, log=is_log)
        case ParameterKind.INTEGER:
            return IntDistribution(int(parameter.low), int(parameter.high), log=is_log)
        case ParameterKind.DISCRETE:
            return IntDistribution(0, len(parameter.choices) - 1)
        case ParameterKind.CATEGORICAL:
            return CategoricalDistribution(parameter.choices)


def _text(parameter: Parameter, param: float | str) -> str:
    """What Optuna chose → what the program gets."""
    match parameter.kind:
        case ParameterKind.DOUBLE:
            return shown(_within(parameter, _mirrored(parameter, float(param))))
        case ParameterKind.INTEGER:
            return str(int(_mirrored(parameter, int(param))))
        case ParameterKind.DISCRETE:
            return parameter.choices[int(param)]
        case ParameterKind.CATEGORICAL:
            return str(param)


def _param(parameter: Parameter, text: str) -> float | str:
    """The other way round."""
    match parameter.kind:
        case ParameterKind.DOUBLE:
            return _within(parameter, _mirrored(parameter, float(text)))
        case ParameterKind.INTEGER:
            return int(_mirrored(parameter, int(text)))
        case ParameterKind.DISCRETE:
            return parameter.choices.index(text)
        case ParameterKind.CATEGORICAL:
            return text


def _mirrored(parameter: Parameter, value: float) -> float:
    return parameter.low + parameter.high - value if parameter.scale is Scale.REVERSE_LOG else value


def _within(parameter: Parameter, value: float) -> float:
    """Subtracting rounds."""
    return min(max(value, parameter.low), parameter.high)


def _untried(tuning: Tuning, tried: set[Values], start: int) -> Values:
    """The first of the space's points, counted from `start` on, that was not tried; the start itself where all were."""
    size = tuning.size or 1
    points = (_nth(tuning, (start + nth) % size) for nth in count())
    return next(point for nth, point in enumerate(points) if point not in tried or nth >= size)


def _nth(tuning: Tuning, index: int) -> Values:
    """The last parameter changes first."""
    values: list[str] = []
    for parameter in reversed(tuning.parameters):
        index, digit = divmod(index, parameter.size or 1)
        values.append(parameter.nth(digit))
    return tuple(reversed(values))


def _number(seed: str) -> int:
    return int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16)
