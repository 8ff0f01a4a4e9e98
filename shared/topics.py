"""Names of the topics; each has one push subscription of the same name (docs/interfaces.md section 1)."""

from __future__ import annotations

from typing import Final

UPLOAD: Final = "trainmaster-upload"
SUBMIT: Final = "trainmaster-submit"
VM_READY: Final = "trainmaster-vm-ready"
REPLICA_EXIT: Final = "trainmaster-replica-exit"
MAINTENANCE: Final = "trainmaster-maintenance"
PROVISION: Final = "trainmaster-provision"
SWEEP: Final = "trainmaster-sweep"
DEAD_LETTER: Final = "trainmaster-dead-letter"
