"""How the VMs and programs of a job are watched: preflight, stalls, and trackers of experiments.

The preflight is the agent's examination of a machine before the program starts. A program is still
if it has no output, no traffic and uses no processor time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Preflight(StrEnum):
    """What follows if the preflight finds a fault of a machine."""

    ON = "on"
    REPORT = "report"
    OFF = "off"


class TrackingRun(StrEnum):
    """Which incarnations of a job are one run of an experiment tracker."""

    AUTO = "auto"
    """All, in W&B, Comet and Neptune, if the job names the tracker by a variable."""
    ONE = "one"
    """All, also in MLflow."""
    EACH = "each"
    """The tracker decides."""


@dataclass(frozen=True, slots=True)
class Watching:
    """How the VMs and programs of a job are watched."""

    preflight: Preflight = Preflight.ON
    """Whether VMs that fail the preflight are replaced (`on`), only named (`report`), or not
    examined (`off`).
    """
    stall_timeout_s: int | None = None
    """Time without output after which the agent ends a program, in seconds; None: no limit."""
    still_s: int | None = None
    """Shortest time for which all members, or the only replica, must be still for the agents to end
    them, in seconds; None: they are not watched.
    """
    tracking_run: TrackingRun = TrackingRun.AUTO
