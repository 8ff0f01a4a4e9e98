"""The announced end of this VM: the program is asked to save, and a replacement is requested in
time.

    announced ──► checkpoint signal ──┬─► the program ends ──────────────────┬──► maintenance event
                                      └─► it runs on, until REPLACEMENT_S ───┘
                                          before the window

A *window* is the time from which Google may stop the VM; the metadata server announces it. The
maintenance event, a message of the agent (docs/interfaces.md section 2), makes the control plane
replace the VM: the VM is *given up*. It is reported once for each cause. If the whole notice is
shorter than a replacement takes, it is reported at once, while the program saves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone

from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.reporting.serial_console import Console

NOTICE_S = 60.0
"""Notice before TERMINATE_ON_HOST_MAINTENANCE. Source: Compute Engine, "Monitor and plan for a host
event".
"""
GPU_NOTICE_S = 3600.0
"""Notice for VMs with GPUs. Source: Compute Engine, "Handle GPU host maintenance events"."""
ANNOUNCE_BEFORE_S = GPU_NOTICE_S
"""A window may be announced days ahead.

The program is asked to save this long before it, not earlier.
"""
REPLACEMENT_S = 600.0
"""Longest time until a replacement runs: a VM, its drivers, its packages or image, and the
program's start.
"""

PREEMPTION_NOTICE_S = 120.0
"""From the notice of a preemption to the beginning of the VM's shutdown, as requests for Spot VMs
ask for (`preemptionNoticeDuration`). A shutdown that begins earlier ends the time: `save_s`.
"""
LAST_S = 5.0
"""The time at the end of a short notice that is left for the report."""
SAVE_S = 20.0
"""From the beginning of a VM's shutdown to SIGTERM for a program that saves.

Enough is left of the VM's last 30 seconds for `LAST_S` between SIGTERM and SIGKILL.
"""
SKEW_MAX_S = 1.0
"""How far apart the shutdown of a VM and its notice may arrive."""
PREEMPTED = "preempted"  # the source of a preemption

# Values of upcoming-maintenance without maintenance: an empty object in the documentation, the
# others in practice.
NOTHING_UPCOMING = ("{}", "{ }", "NONE", '"NONE"')

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|([+-])(\d\d):(\d\d))")
"""The groups: the time without its fraction; sign, hours and minutes of the offset."""


class VmShutdownNotice:
    """What is known about the end of this VM. `agent.py` uses it, on the main thread only."""

    def __init__(
        self,
        inbox: Inbox,
        console: Console,
        reported_causes: Iterable[str],
        *,
        request_save: Callable[[], bool],
        report: Callable[[str], None],
        notice_s: float,
        is_gang: bool = False,
    ) -> None:
        """`reported_causes`: `preemption` and `maintenance`, as far as an earlier agent on this VM
        has reported them.

        `request_save` signals the program and returns whether one is running. `report` reports a
        cause. `notice_s`: NOTICE_S or GPU_NOTICE_S. `is_gang`: all members of the job save
        together, for which they need the rest even of a short notice.
        """
        self._inbox = inbox
        self._console = console
        self._reported_causes = set(reported_causes)
        self._request_save = request_save
        self._report = report
        self._notice_s = notice_s
        self._is_gang = is_gang
        self._clock = inbox.clock.now_s
        self._windows: dict[str, float] = {}
        """For each source of an announcement, the time from which the VM may stop, in seconds since
        1970, as all times here.
        """
        self._upcoming = ""
        """The latest value of upcoming-maintenance."""
        self._announced = False
        self._announced_at = 0.0
        self._shutdown_at: float | None = None
        """When the shutdown of the VM began; None: it has not."""

    def watch(self) -> None:
        """Take each announcement that the metadata server makes from now on."""
        self._inbox.watch("instance/maintenance-event", self.on_maintenance_event)
        self._inbox.watch("instance/preempted", self.on_preempted)
        self._inbox.watch(
            "instance/upcoming-maintenance?alt=json", self.on_upcoming_maintenance, is_optional=True
        )

    @property
    def is_announced(self) -> bool:
        """Whether the end of this VM was announced and not cancelled since."""
        return self._announced

    @property
    def is_given_up(self) -> bool:
        """Whether the replacement of this VM was requested, so that nothing more starts on it."""
        return self._is_gang and self._announced and bool(self._reported_causes)

    @property
    def gives_up_s(self) -> float:
        """Seconds until the replacement of this VM is requested, whatever its program does."""
        window = min(self._windows.values(), default=self._clock())
        is_short = window - self._announced_at <= REPLACEMENT_S
        needed_s = LAST_S if self._is_gang and is_short else REPLACEMENT_S
        return window - self._clock() - needed_s

    def on_shutdown(self) -> None:
        """Count the time that is left to save from now on: the VM shuts down."""
        self._shutdown_at = self._clock()

    @property
    def save_s(self) -> float:
        """Seconds until the shutdown ends the program; 0 unless all members save.

        The shutdown and the notice that explains it may arrive in any order, so the agent waits a
        moment for the notice.
        """
        if not self._is_gang or self._shutdown_at is None:
            return 0.0
        limit_s = SAVE_S if self._announced else SKEW_MAX_S
        return limit_s - (self._clock() - self._shutdown_at)

    def within(self, grace_s: float) -> float:
        """Return the seconds between SIGTERM and SIGKILL: `grace_s`, less the time that the program
        has had to save since the shutdown began, but at least `LAST_S`.
        """
        past_s = 0.0
        if self._is_gang and self._shutdown_at is not None:
            past_s = self._clock() - self._shutdown_at
        return max(grace_s - past_s, min(grace_s, LAST_S))

    def on_preempted(self, text: str) -> None:
        """Take a value of instance/preempted: `TRUE` or `FALSE`."""
        if text != "TRUE" or "preemption" in self._reported_causes:
            return
        if self._is_gang:
            self._expect(PREEMPTED, self._clock() + PREEMPTION_NOTICE_S)
        else:
            self._announce("preemption")
            self._report_once("preemption")

    def on_maintenance_event(self, text: str) -> None:
        """Take a value of instance/maintenance-event, such as `TERMINATE_ON_HOST_MAINTENANCE`."""
        if text.startswith("TERMINATE"):
            self._expect("maintenance-event", self._clock() + self._notice_s)
        elif text == "NONE":
            self._cancel("maintenance-event")
        else:
            self._console.log(f"Maintenance event: {text}.")

    def on_upcoming_maintenance(self, text: str) -> None:
        """Take a value of instance/upcoming-maintenance: JSON, with the start of a window."""
        self._upcoming = text
        window = window_start(text)
        if text in NOTHING_UPCOMING:
            self._cancel("upcoming-maintenance")
        elif window is not None:
            self._schedule(window)
        # Any other answer means that the server does not know, so it cancels nothing.

    def on_idle(self) -> None:
        """Report without waiting, because no program is running that could save."""
        if self._windows:
            self._report_once(self._cause)

    @property
    def _cause(self) -> str:
        """Why this VM is about to stop: a preemption, if one was announced."""
        return "preemption" if PREEMPTED in self._windows else "maintenance"

    def _schedule(self, window: float) -> None:
        """Expect the window now, or ANNOUNCE_BEFORE_S before it, if it is still the announced one
        by then.
        """
        left_s = window - self._clock()
        early_s = left_s - ANNOUNCE_BEFORE_S
        if early_s <= 0:
            self._expect("upcoming-maintenance", window)
            return
        self._console.log(f"Maintenance of this VM is planned in {left_s / 3600:.1f} hours.")
        announced = self._upcoming

        def schedule_if_unchanged() -> None:
            if self._upcoming == announced:
                self._schedule(window)

        self._inbox.post_later(early_s, schedule_if_unchanged)

    def _expect(self, source: str, window: float) -> None:
        """Expect the end of this VM from this time on, unless its cause is reported already."""
        cause = "preemption" if source == PREEMPTED else "maintenance"
        if cause in self._reported_causes:
            return
        self._windows[source] = window
        if self._announced or self._announce(self._cause):
            self._report_in_time()
        else:
            self.on_idle()

    def _report_in_time(self) -> None:
        if not self._windows:
            return  # cancelled meanwhile
        if self.gives_up_s > 0:
            self._inbox.post_later(self.gives_up_s, self._report_in_time)
        else:
            self._report_once(self._cause)

    def _announce(self, cause: str) -> bool:
        """Ask the program to save; return whether one is running."""
        self._announced = True
        self._announced_at = self._clock()
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
    """Return the start of the window in an upcoming-maintenance value, in seconds since 1970; None
    if it has none.
    """
    try:
        payload = json.loads(text)
        match = _TIME.fullmatch(payload.get("window_start_time") or payload["windowStartTime"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if match is None:
        return None
    local_text, sign, hours, minutes = match.groups()
    local = datetime.strptime(local_text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    utc = local + offset if sign == "-" else local - offset
    return utc.timestamp()
