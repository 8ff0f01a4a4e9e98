"""Events about a tuning job and its trials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from trainmaster.core.events.job_events import JobEventBase
from trainmaster.core.model.learning_curve import TrialReport
from trainmaster.core.model.tuning import Measurement, TrialState


@dataclass(frozen=True, slots=True)
class TrialSuggested(JobEventBase):
    """Values were chosen for the next trial of a tuning job.

    A suggestion that is too late for one state of the tuning job may be right for a later state.
    `ended` makes it another event then.
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
class TrialsMeasured(JobEventBase):
    """Programs of running trials reported measurements.

    One event is about all trials that were read together.
    """

    job_id: str
    round: int
    """Number of the event, from 1.

    If two deliveries read at the same time, their events have the same number, and only the first
    one counts.
    """
    reports: tuple[TrialReport, ...]
    at: datetime
    kind: Literal["trials_measured"] = "trials_measured"

    @property
    def key(self) -> str:
        return f"trials-measured-{self.round}"


@dataclass(frozen=True, slots=True)
class TrialUnpromising(JobEventBase):
    """The optimizer compared a running trial with the completed ones, and gave it up."""

    job_id: str
    number: int
    """Number of the trial."""
    comparison: str
    """Values that were compared, in words."""
    at: datetime
    kind: Literal["trial_unpromising"] = "trial_unpromising"

    @property
    def key(self) -> str:
        return self.key_of(self.number)

    @staticmethod
    def key_of(number: int) -> str:
        """Return the key of the event about the trial of this number."""
        return f"trial-{number}-unpromising"


@dataclass(frozen=True, slots=True)
class StopRequested(JobEventBase):
    """The tuning job of this trial stops it early. The event is about the trial's own job."""

    job_id: str
    comparison: str
    """Values that were compared, in words."""
    at: datetime
    kind: Literal["stop_requested"] = "stop_requested"

    @property
    def key(self) -> str:
        return "stop"


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
