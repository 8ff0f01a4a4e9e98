"""System events: entries of Compute Engine's audit log about what happened to a VM without a
request.

The rules do not judge them, because an entry names the VM and not the replica. `flows.maintenance`
finds the replica. Source of the methods: the log `cloudaudit.googleapis.com/system_event`, as
Google's ml-auto-solutions and NVIDIA's NVSentinel read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.core.events import VmRef
from trainmaster.core.model.vm import LossCause

PREFIX: Final = "compute.instances."
LOSSES: Final[Mapping[str, LossCause]] = {
    "preempted": LossCause.PREEMPTION,
    "baremetalCaretakerPreempted": LossCause.PREEMPTION,
    "hostError": LossCause.HOST_ERROR,
    "terminateOnHostMaintenance": LossCause.MAINTENANCE,
    "guestTerminate": LossCause.GONE,
    "stoppedDueToPdDoubleServe": LossCause.GONE,
    "kmsKeyError": LossCause.GONE,
}
"""Methods after which the VM does not run, and why."""
CHANGES: Final = frozenset(
    {"automaticRestart", "instanceManagerHaltForRestart", "repair.recreateInstance"}
)
"""Methods after which the VM runs again, or will soon. A reconciliation reads its current state."""


def log_name(project: str) -> str:
    """Return the name of the log that only Google writes to.

    Programs may write to logs with similar names.
    """
    return f"projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event"


@dataclass(frozen=True, slots=True)
class SystemEvent:
    """An entry of the log."""

    method: str
    """Full name of the method, such as `compute.instances.preempted`."""
    vm: VmRef
    at: datetime
    log: str = ""
    """Full name of the log that the entry is in."""

    @property
    def loss(self) -> LossCause | None:
        """Why the VM is lost; None if it is not."""
        return LOSSES.get(self._verb)

    @property
    def matters(self) -> bool:
        """Whether anything follows from the entry."""
        return self._verb in LOSSES or self._verb in CHANGES

    @property
    def _verb(self) -> str:
        return self.method.removeprefix(PREFIX)
