"""Host maintenance that is announced long before, as to VMs with GPUs: what the metadata server says, and then does.

    instance/upcoming-maintenance   {}  ──►  {"window_start_time": …}      until then, the ordinary course:
    instance/maintenance-event      NONE ───────────────────► TERMINATE_ON_HOST_MAINTENANCE ──► stopped

Source of the answers: "Manage host events across compute instances" of AI Hypercomputer's documentation: all values
are text there, and nothing announced is an empty object. Other VMs do not have the key.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from emulators.compute.api_errors import ApiError, Json
from emulators.compute.instances import Instance, Status
from emulators.compute.lifecycle import Lifecycle
from emulators.compute.metadata_server import Document

KEY: Final = "instance/upcoming-maintenance"
AHEAD_S: Final = 3600.0
"""Source: Compute gives VMs with GPUs an hour's notice."""
WINDOW: Final = timedelta(hours=2)
"""As in the documentation's example."""


def announce(lifecycle: Lifecycle, instance: Instance, in_s: float) -> Json:
    """What is announced. The VM is stopped when its window begins, unless it has gone or was started anew by then."""
    if instance.metadata_tree is None or not instance.properties.accelerators:
        raise ApiError(400, "invalid", f"Maintenance is announced ahead to VMs with GPUs; {instance.name} has none")
    announced = announcement(datetime.now(UTC) + timedelta(seconds=in_s))
    instance.metadata_tree.put(KEY, Document(announced))
    threading.Thread(target=_begin, args=(lifecycle, instance, instance.boots, in_s), daemon=True).start()
    return announced


def announcement(start: datetime) -> Json:
    return {
        "can_reschedule": "true",
        "latest_window_start_time": _text(start),
        "maintenance_reasons": ["PLANNED_UPDATE"],
        "maintenance_status": "PENDING",
        "type": "SCHEDULED",
        "window_end_time": _text(start + WINDOW),
        "window_start_time": _text(start),
    }


def _begin(lifecycle: Lifecycle, instance: Instance, boot: int, in_s: float) -> None:
    notice_s = min(in_s, lifecycle.timing.maintenance_notice_s)
    time.sleep(in_s - notice_s)
    if instance.boots == boot and instance.status is Status.RUNNING:
        lifecycle.maintain(instance, notice_s)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
