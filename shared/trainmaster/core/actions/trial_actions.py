"""Actions on a trial of a tuning job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from trainmaster.core.model.learning_curve import TrialReport
from trainmaster.core.model.tuning import Measurement, TrialState


@dataclass(frozen=True, slots=True)
class BeginTrial:
    """Add the next trial."""

    number: int
    values: tuple[str, ...]
    """Values in the order of the parameters."""
    kind: Literal["begin_trial"] = "begin_trial"


@dataclass(frozen=True, slots=True)
class MarkTrialRunning:
    """Record that the trial's job runs."""

    number: int
    started_at: datetime
    kind: Literal["mark_trial_running"] = "mark_trial_running"


@dataclass(frozen=True, slots=True)
class RecordMeasurements:
    """Add measurements of running trials to their curves."""

    reports: tuple[TrialReport, ...]
    kind: Literal["record_measurements"] = "record_measurements"


@dataclass(frozen=True, slots=True)
class StopTrial:
    """Order that the trial's job is stopped early."""

    number: int
    kind: Literal["stop_trial"] = "stop_trial"


@dataclass(frozen=True, slots=True)
class EndTrial:
    """Record how the trial's job ended."""

    number: int
    state: TrialState
    ended_at: datetime
    measurement: Measurement | None = None
    error: str = ""
    """Error message of a failed trial."""
    kind: Literal["end_trial"] = "end_trial"


TrialAction = BeginTrial | MarkTrialRunning | RecordMeasurements | StopTrial | EndTrial
