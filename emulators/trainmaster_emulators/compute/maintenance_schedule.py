"""Scheduled host maintenance, which Compute announces to VMs with GPUs an hour ahead.

    instance/upcoming-maintenance   {} ──► {"window_start_time": …}

Shortly before that time, ordinary maintenance is announced, which every VM gets:

    instance/maintenance-event      NONE ──► TERMINATE_ON_HOST_MAINTENANCE ──► stopped

Source of the metadata: "Manage host events across compute instances" in AI Hypercomputer's
documentation. All values are text; without an announcement the value is an empty object. Other VMs
do not have the key.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from trainmaster_emulators.machines.compute_errors import ApiError, Json
from trainmaster_emulators.machines.instances import Instance, Status
from trainmaster_emulators.machines.lifecycle import Lifecycle
from trainmaster_emulators.machines.metadata_tree import Document

KEY: Final = "instance/upcoming-maintenance"
NOTICE_S: Final = 3600.0
"""Source: Compute gives VMs with GPUs an hour's notice."""
WINDOW: Final = timedelta(hours=2)
"""Source: the documentation's example."""


def announce(lifecycle: Lifecycle, instance: Instance, in_s: float) -> Json:
    """Announce that the VM is stopped for maintenance in `in_s` seconds; return the announcement.

    It is stopped unless it has been deleted or restarted before. Raises ApiError (400) if it has no
    GPU or is powered off.
    """
    if instance.metadata_tree is None or not instance.properties.accelerators:
        raise ApiError(
            400,
            "invalid",
            f"Only VMs with GPUs get scheduled maintenance; {instance.name} has no GPU",
        )
    announcement = make_announcement(datetime.now(UTC) + timedelta(seconds=in_s))
    instance.metadata_tree.put(KEY, Document(announcement))
    threading.Thread(
        target=_begin, args=(lifecycle, instance, instance.boots, in_s), daemon=True
    ).start()
    return announcement


def make_announcement(start: datetime) -> Json:
    """Return the value of the metadata key, for maintenance that begins at `start`."""
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
    """Stop the VM in `in_s` seconds, after ordinary notice, if this boot still runs then."""
    notice_s = min(in_s, lifecycle.timing.maintenance_notice_s)
    time.sleep(in_s - notice_s)
    if instance.boots == boot and instance.status is Status.RUNNING:
        lifecycle.maintain(instance, notice_s)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
