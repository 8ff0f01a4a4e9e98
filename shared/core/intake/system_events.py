"""What Compute Engine's system-event audit log says happened to a VM unasked.

Not an event that is judged: it knows the VM by name and numeric id, not whose it was. `shared.flows.maintenance` finds
that out. Source of the methods: the log `cloudaudit.googleapis.com/system_event`, as Google's ml-auto-solutions and
NVIDIA's NVSentinel read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.core.events import VmRef
from shared.core.model.vm import LossCause

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
"""Methods after which the VM does not run."""
CHANGES: Final = frozenset({"automaticRestart", "instanceManagerHaltForRestart", "repair.recreateInstance"})
"""Methods after which the VM runs again, or will: what has become of it is looked up."""


@dataclass(frozen=True, slots=True)
class SystemEvent:
    """One entry of the log. `method` is its full name, `compute.instances.preempted`."""

    method: str
    vm: VmRef
    at: datetime

    @property
    def loss(self) -> LossCause | None:
        return LOSSES.get(self._verb)

    @property
    def matters(self) -> bool:
        return self._verb in LOSSES or self._verb in CHANGES

    @property
    def _verb(self) -> str:
        return self.method.removeprefix(PREFIX)
