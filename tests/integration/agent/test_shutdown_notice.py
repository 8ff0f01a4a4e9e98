"""The announced end of a VM: when the program is asked to save, and when a replacement is
requested.

The agent's report of a shutdown requests the replacement of its VM. In a gang, a job whose replicas
train and restart together, the report stops all programs: a gang saves before its agents report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.shutdown.vm_shutdown_notice import (
    ANNOUNCE_BEFORE_S,
    GPU_NOTICE_S,
    LAST_S,
    NOTICE_S,
    PREEMPTION_NOTICE_S,
    REPLACEMENT_S,
    SAVE_S,
    SKEW_MAX_S,
    VmShutdownNotice,
    window_start,
)
from trainmaster.gcp.compute_fleet import purchase_requests

from .support.cloud import Cloud
from .support.vm import Vm

if TYPE_CHECKING:
    from trainmaster.agent.model.clock import Clock

DAY_S = 86_400
GRACE_S = 25
"""Time between SIGTERM and SIGKILL of a program that has had no time to save before."""
T0 = 1_790_000_000.0  # 2026-09-21T14:13:20Z
SAVES = """
    import signal, sys
    def save(*_):
        print("SAVED")
        sys.exit(0)
    signal.signal(signal.SIGUSR1, save)
    print("START")
    while True:
        signal.pause()
"""


class TimedInbox(Inbox):
    """An inbox whose timers run when the test advances the time."""

    def __init__(self) -> None:
        super().__init__(MetadataServer("127.0.0.1:1"))
        self.now = T0
        self.clock = cast("Clock", SimpleNamespace(now_s=lambda: self.now))
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def post_later(self, delay_s: float, handler: Callable[[], None]) -> None:
        self._timers.append((self.now + delay_s, handler))

    def advance_to(self, at: float) -> None:
        while due := [timer for timer in self._timers if timer[0] <= at]:
            timer = min(due, key=lambda timer: timer[0])
            self._timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = at


@dataclass
class NoticeRecorder:
    """A shutdown notice, and everything that it did."""

    notice_s: float = NOTICE_S
    is_running: bool = True
    reported_causes: tuple[str, ...] = ()
    is_gang: bool = False
    actions: list[tuple[float, str]] = field(default_factory=list)
    """Seconds since `T0`, and what was done then."""

    def __post_init__(self) -> None:
        self.inbox = TimedInbox()
        self.notice = VmShutdownNotice(
            self.inbox,
            Console(os.open(os.devnull, os.O_WRONLY)),
            self.reported_causes,
            request_save=self._request_save,
            report=lambda cause: self.actions.append((self.inbox.now - T0, f"reported {cause}")),
            notice_s=self.notice_s,
            is_gang=self.is_gang,
        )

    def _request_save(self) -> bool:
        if self.is_running:
            self.actions.append((self.inbox.now - T0, "save requested"))
        return self.is_running

    def upcoming(self, window_s: float) -> None:
        """Announce maintenance whose window begins `window_s` seconds after `T0`."""
        at = T0 + window_s
        text = f"{_utc(at)}Z"
        self.notice.on_upcoming_maintenance(
            json.dumps({"maintenance_status": "PENDING", "window_start_time": text})
        )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")


def test_short_notice_is_reported_at_once_while_the_program_saves() -> None:
    recorder = NoticeRecorder()
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    assert recorder.actions == [(0, "save requested"), (0, "reported maintenance")]
    recorder.notice.on_idle()
    assert len(recorder.actions) == 2


def test_preemption_is_reported_at_once() -> None:
    recorder = NoticeRecorder()
    recorder.notice.on_preempted("FALSE")
    recorder.notice.on_preempted("TRUE")
    recorder.notice.on_preempted("TRUE")
    assert recorder.actions == [(0, "save requested"), (0, "reported preemption")]


def test_gang_has_the_rest_of_a_preemptions_notice_to_save() -> None:
    recorder = NoticeRecorder(is_gang=True)
    recorder.notice.on_preempted("TRUE")
    recorder.notice.on_preempted("TRUE")
    given_up_at = PREEMPTION_NOTICE_S - LAST_S
    assert recorder.notice.gives_up_s == given_up_at
    recorder.notice.on_shutdown()
    assert (recorder.notice.save_s, recorder.notice.within(GRACE_S)) == (SAVE_S, GRACE_S)
    recorder.inbox.advance_to(T0 + SAVE_S)
    assert (recorder.notice.save_s, recorder.notice.within(GRACE_S)) == (0, LAST_S)
    assert not recorder.notice.is_given_up
    recorder.inbox.advance_to(T0 + PREEMPTION_NOTICE_S)
    assert recorder.actions == [(0, "save requested"), (given_up_at, "reported preemption")]
    assert recorder.notice.is_given_up


def test_gang_on_spot_vms_has_the_notice_that_they_request() -> None:
    """The VM is given up, and a save that is not done is lost, just before its shutdown begins."""
    recorder = NoticeRecorder(is_gang=True)
    recorder.notice.on_preempted("TRUE")
    assert purchase_requests.PREEMPTION_NOTICE_S - recorder.notice.gives_up_s == LAST_S


@pytest.mark.parametrize(
    ("notice_s", "reported_at"),
    [(NOTICE_S, NOTICE_S - LAST_S), (GPU_NOTICE_S, GPU_NOTICE_S - REPLACEMENT_S)],
    ids=["shorter than a replacement takes", "longer"],
)
def test_gang_has_the_notice_of_maintenance_less_what_a_replacement_takes(
    notice_s: float, reported_at: float
) -> None:
    recorder = NoticeRecorder(is_gang=True, notice_s=notice_s)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.inbox.advance_to(T0 + notice_s)
    assert recorder.actions == [(0, "save requested"), (reported_at, "reported maintenance")]


def test_end_of_the_program_of_a_gang_requests_the_replacement_of_its_vm_with_the_true_cause() -> (
    None
):
    recorder = NoticeRecorder(is_gang=True)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.notice.on_preempted("TRUE")
    recorder.notice.on_idle()
    assert recorder.actions == [(0, "save requested"), (0, "reported preemption")]


def test_shutdown_without_notice_waits_a_moment_for_the_notice_and_other_jobs_do_not_wait() -> None:
    for is_gang, expected_s in ((True, SKEW_MAX_S), (False, 0)):
        recorder = NoticeRecorder(is_gang=is_gang)
        recorder.notice.on_shutdown()
        assert (recorder.notice.save_s, recorder.notice.within(GRACE_S)) == (expected_s, GRACE_S)


def test_long_notice_is_reported_just_in_time_for_the_replacement() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.inbox.advance_to(T0 + GPU_NOTICE_S)
    assert recorder.actions == [
        (0, "save requested"),
        (GPU_NOTICE_S - REPLACEMENT_S, "reported maintenance"),
    ]


def test_maintenance_is_reported_when_the_program_ends_early() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.inbox.advance_to(T0 + 40)
    assert recorder.notice.is_announced
    recorder.notice.on_idle()
    recorder.inbox.advance_to(T0 + GPU_NOTICE_S)
    assert recorder.actions == [(0, "save requested"), (40, "reported maintenance")]


def test_maintenance_is_reported_at_once_if_nothing_runs() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S, is_running=False)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    assert recorder.actions == [(0, "reported maintenance")]


def test_window_days_ahead_is_announced_an_hour_before() -> None:
    recorder = NoticeRecorder()
    recorder.upcoming(3 * DAY_S)
    recorder.notice.on_idle()
    assert not recorder.notice.is_announced
    recorder.inbox.advance_to(T0 + 3 * DAY_S)
    assert recorder.actions == [
        (3 * DAY_S - ANNOUNCE_BEFORE_S, "save requested"),
        (3 * DAY_S - REPLACEMENT_S, "reported maintenance"),
    ]


def test_moved_window_replaces_the_earlier_one() -> None:
    recorder = NoticeRecorder()
    recorder.upcoming(DAY_S)
    recorder.upcoming(2 * DAY_S)
    recorder.inbox.advance_to(T0 + 2 * DAY_S)
    assert recorder.actions[0] == (2 * DAY_S - ANNOUNCE_BEFORE_S, "save requested")
    recorder = NoticeRecorder()
    recorder.upcoming(3_000)
    recorder.upcoming(1_500)
    recorder.inbox.advance_to(T0 + 3_000)
    assert recorder.actions == [
        (0, "save requested"),
        (1_500 - REPLACEMENT_S, "reported maintenance"),
    ]


def test_earlier_of_two_windows_counts_and_save_is_requested_once() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S)
    recorder.upcoming(3_000)
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.inbox.advance_to(T0 + 4_000)
    assert recorder.actions == [
        (0, "save requested"),
        (3_000 - REPLACEMENT_S, "reported maintenance"),
    ]


def test_cancelled_maintenance_is_not_reported_until_announced_again() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S)
    recorder.notice.on_maintenance_event("NONE")
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.notice.on_maintenance_event("NONE")
    assert not recorder.notice.is_announced
    recorder.notice.on_idle()
    recorder.inbox.advance_to(T0 + 2 * GPU_NOTICE_S)
    assert recorder.actions == [(0, "save requested")]
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.notice.on_idle()
    assert recorder.actions[1:] == [
        (2 * GPU_NOTICE_S, "save requested"),
        (2 * GPU_NOTICE_S, "reported maintenance"),
    ]


@pytest.mark.parametrize("nothing", ["{}", "{ }", "NONE", '"NONE"'])
def test_upcoming_maintenance_is_cancelled_by_an_empty_answer(nothing: str) -> None:
    recorder = NoticeRecorder()
    recorder.upcoming(3_000)
    recorder.notice.on_upcoming_maintenance(nothing)
    recorder.inbox.advance_to(T0 + 3_000)
    assert recorder.actions == [(0, "save requested")]


def test_source_without_information_cancels_nothing() -> None:
    recorder = NoticeRecorder(notice_s=GPU_NOTICE_S)
    recorder.upcoming(3_000)
    recorder.notice.on_maintenance_event("NONE")
    recorder.notice.on_upcoming_maintenance(
        '{"error": "no notifications have been received yet, try again later"}'
    )
    assert recorder.notice.is_announced
    recorder.inbox.advance_to(T0 + 3_000)
    assert recorder.actions[-1] == (3_000 - REPLACEMENT_S, "reported maintenance")


def test_cause_reported_by_an_earlier_agent_is_not_reported_again() -> None:
    recorder = NoticeRecorder(reported_causes=("maintenance",))
    recorder.notice.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    recorder.notice.on_preempted("TRUE")
    assert recorder.actions == [(0, "save requested"), (0, "reported preemption")]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ('{"window_start_time": "2026-09-21T14:13:20Z"}', T0),
        ('{"window_start_time": "2026-09-21T14:13:20.123456789Z"}', T0),
        ('{"window_start_time": "2026-09-21T07:13:20.000-07:00"}', T0),
        ('{"window_start_time": "2026-09-21T19:43:20+05:30"}', T0),
        # As in the REST API; observed on some machine types.
        ('{"windowStartTime": "2026-09-21T14:13:20Z"}', T0),
        ('{"error": "no notifications have been received yet, try again later"}', None),
        ('{"window_start_time": "tomorrow"}', None),
        ('{"window_start_time": null}', None),
        ("{}", None),
        ("[]", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_window_start_is_parsed(text: str, at: float | None) -> None:
    assert window_start(text) == at


def test_program_that_saves_and_exits_reports_vm_stopping(cloud: Cloud, vm: Vm) -> None:
    vm.program(SAVES)
    vm.configure(checkpoint_signal="SIGUSR1")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.set(
        "instance/upcoming-maintenance", json.dumps({"window_start_time": "2099-01-01T00:00:00Z"})
    )
    cloud.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    vm.wait_for_line("SAVED")
    assert cloud.wait_for_message("maintenance").body["cause"] == "maintenance"
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("vm_stopping", 0)
    assert [topic for topic, _ in cloud.published()] == ["vm-ready", "maintenance", "replica-exit"]


def test_checkpoint_signal_goes_to_the_program_alone(cloud: Cloud, vm: Vm) -> None:
    """Its child processes, such as data loaders, have no handler for the signal and would die."""
    vm.program("""
        import signal, subprocess, sys, time
        wait = "import signal; print('CHILD'); signal.pause()"
        child = subprocess.Popen([sys.executable, "-c", wait])
        signal.signal(signal.SIGUSR1, lambda *_: print("SAVED"))
        print("START")
        while True:
            signal.pause()
            print("CHILD ENDED" if child.poll() is not None else "CHILD RUNS")
        """)
    vm.configure(checkpoint_signal="SIGUSR1")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    vm.wait_for_line("CHILD")
    cloud.set("instance/preempted", "TRUE")
    vm.wait_for_line("SAVED")
    vm.wait_for_line("CHILD RUNS")
    cloud.wait_for_message("maintenance")
    assert [topic for topic, _ in cloud.published()] == ["vm-ready", "maintenance"]


def test_unsupported_metadata_entry_is_requested_once(cloud: Cloud, vm: Vm) -> None:
    vm.program("import signal; print('START'); signal.pause()")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("START", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert len([path for path, _ in cloud.requests if path.endswith("upcoming-maintenance")]) == 1
