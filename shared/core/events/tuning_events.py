"""Events about a tuning job and its trials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from shared.core.events.job_events import JobEventBase
from shared.core.model.tuning import Measurement, TrialState


@dataclass(frozen=True, slots=True)
class TrialSuggested(JobEventBase):
    """Values were chosen for the next trial of a tuning job.

    A suggestion that is too late for one state of the tuning job may be right for a later state. `ended` makes it
    another event then.
    """

    job_id: str
    number: int
    """Number of the trial."""
    values: tuple[str, ...]
    """Values in the order of the parameters."""
    at: datetime
    ended: int = 0
    """Number of trials that had ended when the values were chosen."""
    kind: Literal["trial_suggested"] = "trial_suggested"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-suggested-{self.ended}"


@dataclass(frozen=True, slots=True)
class TrialStarted(JobEventBase):
    """The job of a trial is RUNNING."""

    job_id: str
    number: int
    """Number of the trial."""
    started_at: datetime
    """When the trial's job became RUNNING."""
    at: datetime
    kind: Literal["trial_started"] = "trial_started"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-running"


@dataclass(frozen=True, slots=True)
class TrialEnded(JobEventBase):
    """The job of a trial ended."""

    job_id: str
    number: int
    """Number of the trial."""
    state: TrialState
    ended_at: datetime
    """When the trial's job ended."""
    at: datetime
    measurement: Measurement | None = None
    error: str = ""
    """Error message of the trial's job."""
    kind: Literal["trial_ended"] = "trial_ended"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-ended"


@dataclass(frozen=True, slots=True)
class TuningEnded(JobEventBase):
    """No further trial of the tuning job begins, and none is needed to decide how it ends."""

    job_id: str
    at: datetime
    ended: int = 0
    """Number of trials that had ended."""
    kind: Literal["tuning_ended"] = "tuning_ended"

    @property
    def key(self) -> str:
        return f"tuning-ended-{self.ended}"
