"""The announced end of this VM: the program is asked to save, and its replacement is asked for in time.

    announced ──► checkpoint signal ──► the program ends ─────────────────────────────► told
                          └──────────── it goes on ──── REPLACE_S before the window ──► told

Where the whole notice is shorter than a replacement takes, it is told at once, while the program saves. What is told is
the maintenance event of docs/interfaces.md section 2; it is told once for each cause.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.agent.control.inbox import Inbox
    from shared.agent.reporting.serial_console import Console

NOTICE_S = 60.0  # of TERMINATE_ON_HOST_MAINTENANCE. Source: Compute Engine, "Monitor and plan for a host event"
GPU_NOTICE_S = 3600.0  # Source: Compute Engine, "Handle GPU host maintenance events"
AHEAD_S = GPU_NOTICE_S  # a window announced days before is no news until then: a program can do a lot in days
REPLACE_S = 600.0  # what a replacement takes at most: a VM, its drivers, packages or image, the program's start

# What the metadata server says where nothing is announced: its documentation has an empty object, its readers the rest.
NOTHING_UPCOMING = ("{}", "{ }", "NONE", '"NONE"')

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d))")


class Departure:
    """On the main thread only.

    `ask_to_save` signals the program and says whether there is one; `tell` takes the cause.
    """

    def __init__(
        self,
        inbox: Inbox,
        console: Console,
        told: Iterable[str],
        *,
        ask_to_save: Callable[[], bool],
        tell: Callable[[str], None],
        notice_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inbox = inbox
        self._console = console
        self._told = set(told)
        self._ask_to_save = ask_to_save
        self._tell = tell
        self._notice_s = notice_s
        self._clock = clock
        self._windows: dict[str, float] = {}  # by who announced it: from when on the VM may be gone
        self._upcoming = ""
        self._announced = False

    def watch(self) -> None:
        self._inbox.watch("instance/maintenance-event", self.on_maintenance_event)
        self._inbox.watch("instance/preempted", self.on_preempted)
        self._inbox.watch("instance/upcoming-maintenance?alt=json", self.on_upcoming, is_optional=True)

    @property
    def is_announced(self) -> bool:
        """And not called off since."""
        return self._announced

    def on_preempted(self, text: str) -> None:
        if text == "TRUE" and "preemption" not in self._told:
            self._announce("preemption")
            self._tell_once("preemption")

    def on_maintenance_event(self, text: str) -> None:
        if text.startswith("TERMINATE"):
            self._expect("maintenance-event", self._clock() + self._notice_s)
        elif text == "NONE":
            self._call_off("maintenance-event")
        else:
            self._console.say(f"Maintenance event: {text}.")

    def on_upcoming(self, text: str) -> None:
        self._upcoming = text
        window = window_start(text)
        if text in NOTHING_UPCOMING:
            self._call_off("upcoming-maintenance")
        elif window is not None:  # anything else says that the server does not know: nothing is cleared by that
            self._plan(window)

    def on_idle(self) -> None:
        """Nothing runs that could be saved: there is no reason to wait."""
        if self._windows:
            self._tell_once("maintenance")

    def _plan(self, window: float) -> None:
        early_s = window - AHEAD_S - self._clock()
        if early_s <= 0:
            self._expect("upcoming-maintenance", window)
            return
        self._console.say(f"Maintenance of this VM is planned in {(early_s + AHEAD_S) / 3600:.1f} hours.")
        text = self._upcoming
        self._inbox.later(early_s, lambda: self._plan(window) if text == self._upcoming else None)

    def _expect(self, source: str, window: float) -> None:
        if "maintenance" in self._told:
            return
        self._windows[source] = window
        if self._announced or self._announce("maintenance"):
            self._tell_in_time()
        else:
            self.on_idle()

    def _tell_in_time(self) -> None:
        if not self._windows:
            return  # called off meanwhile
        left_s = min(self._windows.values()) - REPLACE_S - self._clock()
        if left_s > 0:
            self._inbox.later(left_s, self._tell_in_time)
        else:
            self._tell_once("maintenance")

    def _announce(self, cause: str) -> bool:
        """Whether a program was there to be asked."""
        self._announced = True
        self._console.say(f"This VM is about to go: {cause}.")
        return self._ask_to_save()

    def _tell_once(self, cause: str) -> None:
        if cause not in self._told:
            self._told.add(cause)
            self._tell(cause)

    def _call_off(self, source: str) -> None:
        was_expected = self._windows.pop(source, None) is not None
        if was_expected and not self._windows and not self._told:
            self._announced = False
            self._console.say("The maintenance of this VM is called off.")


def window_start(text: str) -> float | None:
    """Of an upcoming maintenance, in seconds since 1970; None where the answer holds none."""
    try:
        told = json.loads(text)
        found = _TIME.fullmatch(told.get("window_start_time") or told["windowStartTime"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if found is None:
        return None
    day, sign, hours, minutes = found.groups()
    at = datetime.strptime(day, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    return (at + offset if sign == "-" else at - offset).timestamp()
