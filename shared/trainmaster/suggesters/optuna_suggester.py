"""The Suggester port with Optuna, which only the function `tune` imports.

Every suggestion builds a new Optuna study from the trials of the tuning job, and from those of the
earlier tuning jobs that it continues (`Tuning.earlier`). Nothing is kept between suggestions, and
the same trials and seed give the same values. Running trials count as bad ones, so that new trials
look elsewhere (TPE's constant liar).

| scale                  | Optuna's value                                                  |
| ---------------------- | --------------------------------------------------------------- |
| linear, log            | the value itself                                                |
| reverse log            | low + high - value, on a log scale: fine near the upper bound   |
| DISCRETE               | the index in the list of values, for any scale                  |
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainmaster.core.model.search_space import Parameter, ParameterKind, Scale, format_number
from trainmaster.core.model.tuning import Algorithm, Trial, Tuning
from trainmaster.core.model.tuning import TrialState as State
from trainmaster.suggesters.optuna_pruners import direction_of, find_unpromising

TRIES: Final = 16
"""How often the sampler may suggest the values of an earlier trial.

Then the next untried point of the space is used.
"""

Values = tuple[str, ...]


class OptunaSuggester:
    """Chooses the values of trials with Optuna, and the trials that are stopped early. Both are
    deterministic: each call gives Optuna all trials so far.

    Adapter of `trainmaster.ports.Suggester`.
    """

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """Return the values of the next trial: one per parameter, in the order of
        `tuning.parameters`.
        """
        tried = {trial.values for trial in tuning.trials} | {past.values for past in tuning.earlier}
        if tuning.algorithm is Algorithm.GRID_SEARCH:
            return _first_untried(tuning, tried, start=0)
        for attempt in range(TRIES):
            values = _ask_optuna(tuning, _seed_number(f"{seed}/{attempt}"))
            if values not in tried:
                return values
        if tuning.size is None:
            return _ask_optuna(tuning, _seed_number(seed))
        return _first_untried(tuning, tried, _seed_number(seed))

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with
        the values that were compared, in words. Empty without such a rule.
        """
        return find_unpromising(tuning)


def _ask_optuna(tuning: Tuning, seed: int) -> Values:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction=direction_of(tuning.goal), sampler=_sampler(tuning.algorithm, seed)
    )
    distributions = {parameter.name: _distribution(parameter) for parameter in tuning.parameters}
    convert = partial(_optuna_trial, tuning, distributions)
    for past in tuning.earlier:
        study.add_trial(convert(past.values, TrialState.COMPLETE, past.value))
    for trial in tuning.trials:
        measured = trial.measurement
        value = measured.value if measured else None
        step = measured.step if measured else 0
        study.add_trial(convert(trial.values, _state(trial), value, step))
    params = study.ask(distributions).params
    return tuple(_to_text(parameter, params[parameter.name]) for parameter in tuning.parameters)


def _sampler(algorithm: Algorithm, seed: int) -> BaseSampler:
    if algorithm is Algorithm.RANDOM_SEARCH:
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        # Optuna still marks both options as experimental, years after their introduction.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _state(trial: Trial) -> TrialState:
    if not trial.state.is_terminal:
        return TrialState.RUNNING
    if trial.measurement is None or trial.state not in (State.SUCCEEDED, State.STOPPED):
        return TrialState.FAIL
    return TrialState.COMPLETE if trial.state is State.SUCCEEDED else TrialState.PRUNED


def _optuna_trial(
    tuning: Tuning,
    distributions: dict[str, BaseDistribution],
    values: Values,
    state: TrialState,
    value: float | None,
    step: int = 0,
) -> FrozenTrial:
    """Return a trial of ours as Optuna's.

    `step`: the step of the value, which counts for a trial that was stopped early.
    """
    params = {
        parameter.name: _from_text(parameter, text)
        for parameter, text in zip(tuning.parameters, values, strict=True)
    }
    stopped_at = None
    if state is TrialState.PRUNED and value is not None:
        stopped_at = {step: value}
    return create_trial(
        state=state,
        params=params,
        distributions=distributions,
        value=value if state is TrialState.COMPLETE else None,
        intermediate_values=stopped_at,
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


def _to_text(parameter: Parameter, param: float | str) -> str:
    """Convert Optuna's value to the program's argument."""
    match parameter.kind:
        case ParameterKind.DOUBLE:
            return format_number(_clamp(parameter, _mirror(parameter, float(param))))
        case ParameterKind.INTEGER:
            return str(int(_mirror(parameter, int(param))))
        case ParameterKind.DISCRETE:
            return parameter.choices[int(param)]
        case ParameterKind.CATEGORICAL:
            return str(param)


def _from_text(parameter: Parameter, text: str) -> float | str:
    """Convert the program's argument to Optuna's value: the inverse of `_to_text`."""
    match parameter.kind:
        case ParameterKind.DOUBLE:
            return _clamp(parameter, _mirror(parameter, float(text)))
        case ParameterKind.INTEGER:
            return int(_mirror(parameter, int(text)))
        case ParameterKind.DISCRETE:
            return parameter.choices.index(text)
        case ParameterKind.CATEGORICAL:
            return text


def _mirror(parameter: Parameter, value: float) -> float:
    """Return the value within its range, counted from the other end if the scale is reversed."""
    if parameter.scale is Scale.REVERSE_LOG:
        return parameter.low + parameter.high - value
    return value


def _clamp(parameter: Parameter, value: float) -> float:
    """Keep the value within its range, which the rounding of `_mirror` may leave."""
    return min(max(value, parameter.low), parameter.high)


def _first_untried(tuning: Tuning, tried: set[Values], start: int) -> Values:
    """Return the first untried point of a finite space, searching from `start`; the start itself if
    all were tried.
    """
    size = tuning.size or 1
    for offset in range(size):
        point = _point(tuning, (start + offset) % size)
        if point not in tried:
            return point
    return _point(tuning, start % size)


def _point(tuning: Tuning, index: int) -> Values:
    """Return the point with this index of a finite space. The last parameter changes fastest."""
    values: list[str] = []
    for parameter in reversed(tuning.parameters):
        index, digit = divmod(index, parameter.size or 1)
        values.append(parameter.value_at(digit))
    return tuple(reversed(values))


def _seed_number(seed: str) -> int:
    return int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16)
