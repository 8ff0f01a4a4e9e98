"""The announced end of this VM: the program is asked to save, and a replacement is requested in time.

    announced ──► checkpoint signal ──┬─► the program ends ─────────────────────► maintenance event
                                      └─► it runs on, until REPLACEMENT_S before the window ──► maintenance event

The maintenance event (docs/interfaces.md section 2) makes the control plane replace the VM. It is reported once for
each cause. If the whole notice is shorter than a replacement takes, it is reported at once, while the program saves.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainmaster.agent.model.inbox import Inbox
    from trainmaster.agent.reporting.serial_console import Console

NOTICE_S = 60.0
"""Notice before TERMINATE_ON_HOST_MAINTENANCE. Source: Compute Engine, "Monitor and plan for a host event"."""
GPU_NOTICE_S = 3600.0
"""The same for VMs with GPUs. Source: Compute Engine, "Handle GPU host maintenance events"."""
ANNOUNCE_BEFORE_S = GPU_NOTICE_S
"""A window may be announced days ahead. The program is asked to save this long before it, not earlier."""
REPLACEMENT_S = 600.0
"""Longest time until a replacement runs: a VM, its drivers, its packages or image, and the program's start."""

# Values of upcoming-maintenance without maintenance: an empty object in the documentation, the others in practice.
NOTHING_UPCOMING = ("{}", "{ }", "NONE", '"NONE"')

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d))")


class VmShutdownNotice:
    """Use it on the main thread only."""

    def __init__(
        self,
        inbox: Inbox,
        console: Console,
        reported_causes: Iterable[str],
        *,
        request_save: Callable[[], bool],
        report: Callable[[str], None],
        notice_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`reported_causes`: reported by an earlier agent on this VM.

        `request_save` signals the program and returns whether one is running. `report` reports a cause. `notice_s`:
        NOTICE_S or GPU_NOTICE_S.
        """
        self._inbox = inbox
        self._console = console
        self._reported_causes = set(reported_causes)
        self._request_save = request_save
        self._report = report
        self._notice_s = notice_s
        self._clock = clock
        self._windows: dict[str, float] = {}
        """For each source, the time from which the VM may stop."""
        self._upcoming = ""
        self._announced = False

    def watch(self) -> None:
        self._inbox.watch("instance/maintenance-event", self.on_maintenance_event)
        self._inbox.watch("instance/preempted", self.on_preempted)
        self._inbox.watch("instance/upcoming-maintenance?alt=json", self.on_upcoming_maintenance, is_optional=True)

    @property
    def is_announced(self) -> bool:
        """Whether the end of this VM was announced and not cancelled since."""
        return self._announced

    def on_preempted(self, text: str) -> None:
        if text == "TRUE" and "preemption" not in self._reported_causes:
            self._announce("preemption")
            self._report_once("preemption")

    def on_maintenance_event(self, text: str) -> None:
        if text.startswith("TERMINATE"):
            self._expect("maintenance-event", self._clock() + self._notice_s)
        elif text == "NONE":
            self._cancel("maintenance-event")
        else:
            self._console.log(f"Maintenance event: {text}.")

    def on_upcoming_maintenance(self, text: str) -> None:
        self._upcoming = text
        window = window_start(text)
        if text in NOTHING_UPCOMING:
            self._cancel("upcoming-maintenance")
        elif window is not None:  # any other answer means that the server does not know, so it cancels nothing
            self._schedule(window)

    def on_idle(self) -> None:
        """Report without waiting, because no program is running that could save."""
        if self._windows:
            self._report_once("maintenance")

    def _schedule(self, window: float) -> None:
        """Expect the window now, or ANNOUNCE_BEFORE_S before it if it is still the announced one by then."""
        early_s = window - ANNOUNCE_BEFORE_S - self._clock()
        if early_s <= 0:
            self._expect("upcoming-maintenance", window)
            return
        self._console.log(f"Maintenance of this VM is planned in {(early_s + ANNOUNCE_BEFORE_S) / 3600:.1f} hours.")
        text = self._upcoming
        self._inbox.post_later(early_s, lambda: self._schedule(window) if text == self._upcoming else None)

    def _expect(self, source: str, window: float) -> None:
        if "maintenance" in self._reported_causes:
            return
        self._windows[source] = window
        if self._announced or self._announce("maintenance"):
            self._report_in_time()
        else:
            self.on_idle()

    def _report_in_time(self) -> None:
        if not self._windows:
            return  # cancelled meanwhile
        remaining_s = min(self._windows.values()) - REPLACEMENT_S - self._clock()
        if remaining_s > 0:
            self._inbox.post_later(remaining_s, self._report_in_time)
        else:
            self._report_once("maintenance")

    def _announce(self, cause: str) -> bool:
        """Ask the program to save; return whether one is running."""
        self._announced = True
        self._console.log(f"This VM is about to stop: {cause}.")
        return self._request_save()

    def _report_once(self, cause: str) -> None:
        if cause not in self._reported_causes:
            self._reported_causes.add(cause)
            self._report(cause)

    def _cancel(self, source: str) -> None:
        was_expected = self._windows.pop(source, None) is not None
        if was_expected and not self._windows and not self._reported_causes:
            self._announced = False
            self._console.log("The maintenance of this VM is cancelled.")


def window_start(text: str) -> float | None:
    """Return the start of the window in an upcoming-maintenance value, in seconds since 1970; None if it has none."""
    try:
        payload = json.loads(text)
        match = _TIME.fullmatch(payload.get("window_start_time") or payload["windowStartTime"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if match is None:
        return None
    day, sign, hours, minutes = match.groups()
    at = datetime.strptime(day, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    return (at + offset if sign == "-" else at - offset).timestamp()
