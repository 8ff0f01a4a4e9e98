"""The stored data of a tuning job: its settings, its trials and their results.

    Tuning     on the tuning job, which has no replicas of its own
    TrialOf    on the job of each trial, whose id no user can choose

Values are stored as the text that the program gets, in the order of the parameters, so that a
thousand trials fit into one document.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from trainmaster.core.model.search_space import Parameter

TRIALS_MAX: Final = 1000
"""Trials of one tuning job. Source: Vizier's limit of trials in a study."""

_TRIAL_ID: Final = re.compile(r"(?P<tuning_job>.+)-trial-(?P<number>[1-9][0-9]{0,8})")
"""Job ids that users choose have no hyphen."""


class Goal(StrEnum):
    """Whether a larger or a smaller metric is better."""

    MAXIMIZE = "MAXIMIZE"
    MINIMIZE = "MINIMIZE"


class Algorithm(StrEnum):
    """The way in which values are chosen."""

    BAYESIAN = "BAYESIAN"  # the default
    GRID_SEARCH = "GRID_SEARCH"
    RANDOM_SEARCH = "RANDOM_SEARCH"


class StoppingRule(StrEnum):
    """Which running trials are stopped early (`trainmaster.suggesters`)."""

    NONE = "NONE"
    # The best value so far is worse than the median of the completed trials' means up to its step.
    MEDIAN = "MEDIAN"
    # The best value so far is in the worst quarter of the completed trials' values.
    WORST_QUARTER = "WORST_QUARTER"


class TrialState(StrEnum):
    """State of a trial, as recorded in the tuning job. The words are those of the job states."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # found unpromising; its job is being stopped
    SUCCEEDED = "SUCCEEDED"
    STOPPED = "STOPPED"  # stopped early; its last measurement counts
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self not in (TrialState.QUEUED, TrialState.RUNNING, TrialState.STOPPING)


@dataclass(frozen=True, slots=True)
class Point:
    """A value of the metric that a program reported before its last one."""

    value: float
    step: int = 0
    """Training step at which it was measured."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value of the metric that a program reported."""

    value: float
    step: int = 0
    """Training step at which it was measured."""
    earlier: tuple[Point, ...] = ()
    """Values that the program reported before it, oldest first.

    Only an exit and the end of its trial carry them.
    """

    @property
    def alone(self) -> Measurement:
        """This measurement without the earlier ones."""
        return Measurement(self.value, self.step)

    @property
    def curve(self) -> tuple[Measurement, ...]:
        """The earlier measurements and this one; empty if no earlier ones are known."""
        return (
            (*(Measurement(point.value, point.step) for point in self.earlier), self.alone)
            if self.earlier
            else ()
        )


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """A successful trial of the tuning job that this one resumes."""

    values: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One assignment of values to the parameters."""

    number: int
    """Number of the trial, from 1."""
    values: tuple[str, ...]
    """Values in the order of the parameters."""
    state: TrialState = TrialState.QUEUED
    started_at: datetime | None = None
    """When the trial's job started."""
    ended_at: datetime | None = None
    """When the trial's job ended."""
    measurement: Measurement | None = None
    """The final measurement, once the trial has ended."""
    reported: tuple[Measurement, ...] = ()
    """Measurements that its program reported while it ran, by step: at most
    `learning_curve.points_max`.
    """

    @property
    def latest(self) -> Measurement | None:
        """The final measurement, or the latest one of a trial that runs."""
        return self.measurement or (self.reported[-1] if self.reported else None)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Search space, settings and trials of a tuning job."""

    parameters: tuple[Parameter, ...]
    """The search space."""
    goal: Goal = Goal.MAXIMIZE
    algorithm: Algorithm = Algorithm.BAYESIAN
    metric_tag: str = "training/hptuning/metric"
    """Name of the metric that programs report."""
    max_trials: int = 1
    """Largest number of trials."""
    max_parallel: int = 1
    """Number of trials that may run at the same time."""
    max_failed: int = 0
    """Number of failed trials that end the tuning job; 0: it ends if a trial fails before any other
    succeeds.
    """
    stopping: StoppingRule = StoppingRule.NONE
    """Which running trials are stopped early."""
    rounds_measured: int = 0
    """Number of ledger entries with measurements of running trials."""
    resumes: str | None = None
    """Id of the tuning job that this one resumes."""
    earlier: tuple[EarlierTrial, ...] = ()
    """Results of the tuning job that this one resumes."""
    trials: tuple[Trial, ...] = ()
    """The trials in the order of their numbers."""
    last_error: str = ""
    """Error message of the trial that failed last."""

    @property
    def live(self) -> tuple[Trial, ...]:
        """Trials that have not ended."""
        return tuple(trial for trial in self.trials if not trial.state.is_terminal)

    @property
    def ended(self) -> int:
        """Number of trials that have ended."""
        return len(self.trials) - len(self.live)

    @property
    def size(self) -> int | None:
        """Number of different assignments; None if infinite."""
        sizes = [parameter.size for parameter in self.parameters]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    @property
    def completed(self) -> tuple[Trial, ...]:
        """Trials that ended well: they succeeded, or were stopped early."""
        return tuple(
            trial
            for trial in self.trials
            if trial.state in (TrialState.SUCCEEDED, TrialState.STOPPED)
        )

    def of_state(self, state: TrialState) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state is state)

    def assignments(self, values: tuple[str, ...]) -> tuple[Assignment, ...]:
        """Return the values with the names of their parameters."""
        return tuple(
            Assignment(parameter.name, value)
            for parameter, value in zip(self.parameters, values, strict=True)
        )

    def best_first(self) -> tuple[Trial, ...]:
        """Return the trials as AI Platform Training listed them: the best first, those without a
        measurement last.
        """
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
class Assignment:
    """A parameter and its value in one trial."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class TrialOf:
    """Which trial of which tuning job a job is."""

    job_id: str
    """Id of the tuning job."""
    number: int
    """Number of the trial."""
    metric_tag: str
    assigned: tuple[Assignment, ...] = ()
    """The values that its program gets."""
    measurement: Measurement | None = None
    """The last measurement of its program, once it has succeeded."""


def trial_id(job_id: str, number: int) -> str:
    """Return the id of the trial's own job."""
    return f"{job_id}-trial-{number}"


def tuning_job_id(job_id: str) -> str:
    """Return the id of a trial's tuning job; for any other job, its own id."""
    match = _TRIAL_ID.fullmatch(job_id)
    return match["tuning_job"] if match else job_id


def trial_number(job_id: str) -> str:
    """Return the number of the trial with this job id, as text; empty for a job that is not a
    trial.
    """
    match = _TRIAL_ID.fullmatch(job_id)
    return match["number"] if match else ""


def last_ended(trials: Iterable[Trial]) -> Trial:
    """Return the trial whose job ended last, whatever the order of the reports.

    Raises ValueError for no trial.
    """
    return max(trials, key=lambda trial: (trial.ended_at, trial.number))
