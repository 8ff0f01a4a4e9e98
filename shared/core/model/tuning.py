"""What is stored about a tuning job: what may be tried, what was tried, and what came of it.

    Tuning     on the tuning job, which has no replicas of its own
    TrialOf    on each trial, which is a job like any other under an id that no user can choose

Values are kept as the text that the program gets, in the order of the parameters: a thousand trials fit one document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

TRIALS_MAX: Final = 1000
"""Of one tuning job. Source: Vizier's limit of trials in a study."""

_TRIAL_ID: Final = re.compile(r"(?P<study>.+)-trial-(?P<number>[1-9][0-9]*)")
"""Ids of users' jobs have no hyphen."""


class Goal(StrEnum):
    MAXIMIZE = "MAXIMIZE"
    MINIMIZE = "MINIMIZE"


class Algorithm(StrEnum):
    BAYESIAN = "BAYESIAN"  # what an unspecified one means
    GRID_SEARCH = "GRID_SEARCH"
    RANDOM_SEARCH = "RANDOM_SEARCH"


class ParameterKind(StrEnum):
    DOUBLE = "DOUBLE"
    INTEGER = "INTEGER"
    CATEGORICAL = "CATEGORICAL"
    DISCRETE = "DISCRETE"


class Scale(StrEnum):
    """Along which values are spread evenly."""

    LINEAR = "LINEAR"
    LOG = "LOG"
    REVERSE_LOG = "REVERSE_LOG"


class TrialState(StrEnum):
    """The words of the job states, as far as a tuning job has heard of its trial."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self not in (TrialState.QUEUED, TrialState.RUNNING)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`choices` of CATEGORICAL and DISCRETE, else `low` and `high`, both included."""

    name: str
    kind: ParameterKind
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    scale: Scale = Scale.LINEAR

    @property
    def size(self) -> int | None:
        """How many values it has; None: without end."""
        match self.kind:
            case ParameterKind.DOUBLE:
                return 1 if self.low == self.high else None
            case ParameterKind.INTEGER:
                return int(self.high) - int(self.low) + 1
            case _:
                return len(self.choices)

    def nth(self, index: int) -> str:
        """Of one that has an end: its values in order."""
        if self.choices:
            return self.choices[index]
        return shown(self.low) if self.kind is ParameterKind.DOUBLE else str(int(self.low) + index)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a program reported of itself, with the step of the training it was at."""

    value: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """A trial of the study that this one continues."""

    values: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One assignment of values. `started_at` and `ended_at` are those of its job."""

    number: int
    values: tuple[str, ...]
    state: TrialState = TrialState.QUEUED
    started_at: datetime | None = None
    ended_at: datetime | None = None
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    """`max_failed` 0: the job decides. `earlier`: what the study before found that this one continues. `last_error`: of
    the trial that failed last."""

    parameters: tuple[Parameter, ...]
    goal: Goal = Goal.MAXIMIZE
    algorithm: Algorithm = Algorithm.BAYESIAN
    metric_tag: str = "training/hptuning/metric"
    max_trials: int = 1
    max_parallel: int = 1
    max_failed: int = 0
    resumes: str | None = None
    earlier: tuple[Past, ...] = ()
    trials: tuple[Trial, ...] = ()
    last_error: str = ""

    @property
    def live(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if not trial.state.is_terminal)

    @property
    def ended(self) -> int:
        return len(self.trials) - len(self.live)

    @property
    def size(self) -> int | None:
        """How many different trials there can be; None: without end."""
        sizes = [parameter.size for parameter in self.parameters]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    def of_state(self, state: TrialState) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state is state)

    def assigned(self, values: tuple[str, ...]) -> tuple[Assigned, ...]:
        return tuple(Assigned(parameter.name, value) for parameter, value in zip(self.parameters, values, strict=True))

    def best_first(self) -> tuple[Trial, ...]:
        """As the service listed them: by the goal; those without a measurement last, in their order."""
        sign = -1 if self.goal is Goal.MAXIMIZE else 1
        return tuple(
            sorted(
                self.trials,
                key=lambda trial: (
                    trial.measurement is None,
                    sign * trial.measurement.value if trial.measurement else 0.0,
                    trial.number,
                ),
            )
        )


@dataclass(frozen=True, slots=True)
class Assigned:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class TrialOf:
    """Whose trial a job is. `measurement`: what its program reported in the end."""

    job_id: str
    number: int
    metric_tag: str
    assigned: tuple[Assigned, ...] = ()
    measurement: Measurement | None = None


def trial_id(job_id: str, number: int) -> str:
    """Of the trial's own job."""
    return f"{job_id}-trial-{number}"


def study_of(job_id: str) -> str:
    """Of a trial's id the tuning job's; of any other itself."""
    match = _TRIAL_ID.fullmatch(job_id)
    return match["study"] if match else job_id


def number_of(job_id: str) -> str:
    """The trial's number, as its program and its log have it; empty for a job that is no trial."""
    match = _TRIAL_ID.fullmatch(job_id)
    return match["number"] if match else ""


def last_ended(trials: Iterable[Trial]) -> Trial:
    """By when their jobs ended, not by when that was told. Raises ValueError for none."""
    return max(trials, key=lambda trial: (trial.ended_at, trial.number))


def shown(number: float) -> str:
    """As a program gets it: whole numbers without a point, so that it may read them as either."""
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(number)
