"""Names of the topics.

Each topic of a function has one push subscription of the same name (docs/interfaces.md).

Two topics lead to the function `maintenance`: VMs may publish to MAINTENANCE, only Compute Engine's
audit log to SYSTEM_EVENTS.
"""

from __future__ import annotations

from typing import Final

UPLOAD: Final = "trainmaster-upload"
SUBMIT: Final = "trainmaster-submit"
VM_READY: Final = "trainmaster-vm-ready"
REPLICA_EXIT: Final = "trainmaster-replica-exit"
MAINTENANCE: Final = "trainmaster-maintenance"
SYSTEM_EVENTS: Final = "trainmaster-system-events"
PROVISION: Final = "trainmaster-provision"
TUNE: Final = "trainmaster-tune"
SWEEP: Final = "trainmaster-sweep"
JOB_STATE: Final = "trainmaster-job-state"
"""For subscribers of the installation (docs/notifications.md). No function reads it."""
DEAD_LETTER: Final = "trainmaster-dead-letter"
