"""The text that the agent of a trial writes to the guest attribute `trainmaster/metric`.
docs/interfaces.md, section 3.

    {"attempt": 1, "measurements": [[100, 0.71], [200, 0.83]]}

Each measurement is a step and a value, in the program's order. One job after another may hold a VM;
`tenure` is the number of this trial among them, and is left out if it is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from trainmaster.core.model.tuning import Measurement
from trainmaster.errors import PermanentError
from trainmaster.messaging.agent_messages import STEP_MAX, Count
from trainmaster.messaging.decoding import MessageModel, decode_json

TEXT_MAX: Final = 16_384
"""Most characters that are read. The agent writes fewer; a program on the VM may write anything."""
MEASUREMENTS_MAX: Final = 50
"""Measurements of one report, the latest ones, as in the agent."""

Step = Annotated[int, Field(ge=0, le=STEP_MAX)]
Value = Annotated[float, Field(allow_inf_nan=False)]


class ReportedMetricModel(MessageModel):
    """The text, checked field by field."""

    attempt: Count
    tenure: Count = 1
    measurements: list[tuple[Step, Value]]


@dataclass(frozen=True, slots=True)
class ReportedMetric:
    """Measurements that the running program of a trial has reported."""

    attempt: int
    """Attempt of the trial's job."""
    tenure: int
    """The tenure in which it was written: the VM may have had an earlier trial."""
    measurements: tuple[Measurement, ...]


def decode_reported_metric(text: str) -> ReportedMetric | None:
    """Return the measurements; None if the text is not as the agent writes it."""
    if len(text) > TEXT_MAX:
        return None
    try:
        reported = decode_json(ReportedMetricModel, text.encode(errors="replace"))
    except PermanentError:
        return None
    latest = reported.measurements[-MEASUREMENTS_MAX:]
    return ReportedMetric(
        reported.attempt, reported.tenure, tuple(Measurement(value, step) for step, value in latest)
    )
