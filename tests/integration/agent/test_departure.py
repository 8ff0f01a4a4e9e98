"""The announced end of a VM: when the program is asked to save, and when its replacement is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from shared.agent.control.inbox import Inbox
from shared.agent.http.metadata_server import Metadata
from shared.agent.reporting.serial_console import Console
from shared.agent.shutdown.vm_shutdown_notice import (
    AHEAD_S,
    GPU_NOTICE_S,
    NOTICE_S,
    REPLACE_S,
    Departure,
    window_start,
)

from .support.cloud import Cloud
from .support.vm import Vm

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


class Clock(Inbox):
    """An inbox whose future is run by hand."""

    def __init__(self) -> None:
        super().__init__(Metadata("127.0.0.1:1"))
        self.now = T0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, handler: Callable[[], None]) -> None:
        self._timers.append((self.now + delay_s, handler))

    def pass_until(self, at: float) -> None:
        while due := [timer for timer in self._timers if timer[0] <= at]:
            timer = min(due, key=lambda timer: timer[0])
            self._timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = at


@dataclass
class Story:
    """A departure with everything it did, and when."""

    notice_s: float = NOTICE_S
    is_running: bool = True
    told: tuple[str, ...] = ()
    did: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.departure = Departure(
            self.clock,
            Console(os.open(os.devnull, os.O_WRONLY)),
            self.told,
            ask_to_save=self._ask,
            tell=lambda cause: self.did.append((self.clock.now - T0, f"told {cause}")),
            notice_s=self.notice_s,
            clock=lambda: self.clock.now,
        )

    def _ask(self) -> bool:
        if self.is_running:
            self.did.append((self.clock.now - T0, "asked"))
        return self.is_running

    def upcoming(self, window_s: float) -> None:
        at = T0 + window_s
        text = f"{_utc(at)}Z"
        self.departure.on_upcoming(json.dumps({"maintenance_status": "PENDING", "window_start_time": text}))


def _utc(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")


def test_a_short_notice_is_told_at_once_while_the_program_saves() -> None:
    story = Story()
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    assert story.did == [(0, "asked"), (0, "told maintenance")]
    story.departure.on_idle()
    assert len(story.did) == 2


def test_a_preemption_is_told_at_once_too() -> None:
    story = Story()
    story.departure.on_preempted("FALSE")
    story.departure.on_preempted("TRUE")
    story.departure.on_preempted("TRUE")
    assert story.did == [(0, "asked"), (0, "told preemption")]


def test_of_an_hour_the_program_has_what_its_replacement_does_not_need() -> None:
    story = Story(notice_s=GPU_NOTICE_S)
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.clock.pass_until(T0 + GPU_NOTICE_S)
    assert story.did == [(0, "asked"), (GPU_NOTICE_S - REPLACE_S, "told maintenance")]


def test_a_program_that_ends_is_replaced_before_the_window_and_not_after() -> None:
    story = Story(notice_s=GPU_NOTICE_S)
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.clock.pass_until(T0 + 40)
    assert story.departure.is_announced
    story.departure.on_idle()
    story.clock.pass_until(T0 + GPU_NOTICE_S)
    assert story.did == [(0, "asked"), (40, "told maintenance")]


def test_where_nothing_runs_there_is_nothing_to_wait_for() -> None:
    story = Story(notice_s=GPU_NOTICE_S, is_running=False)
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    assert story.did == [(0, "told maintenance")]


def test_a_window_days_ahead_disturbs_nobody_until_an_hour_before() -> None:
    story = Story()
    story.upcoming(3 * 86_400)
    story.departure.on_idle()
    assert not story.departure.is_announced
    story.clock.pass_until(T0 + 3 * 86_400)
    assert story.did == [(3 * 86_400 - AHEAD_S, "asked"), (3 * 86_400 - REPLACE_S, "told maintenance")]


def test_a_window_that_was_moved_counts_from_where_it_is() -> None:
    story = Story()
    story.upcoming(86_400)
    story.upcoming(2 * 86_400)
    story.clock.pass_until(T0 + 2 * 86_400)
    assert story.did[0] == (2 * 86_400 - AHEAD_S, "asked")
    story = Story()
    story.upcoming(3_000)
    story.upcoming(1_500)
    story.clock.pass_until(T0 + 3_000)
    assert story.did == [(0, "asked"), (900, "told maintenance")]


def test_the_nearest_of_two_announcements_counts_and_the_program_is_asked_once() -> None:
    story = Story(notice_s=GPU_NOTICE_S)
    story.upcoming(3_000)
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.clock.pass_until(T0 + 4_000)
    assert story.did == [(0, "asked"), (3_000 - REPLACE_S, "told maintenance")]


def test_what_is_called_off_is_not_told_and_what_comes_again_is() -> None:
    story = Story(notice_s=GPU_NOTICE_S)
    story.departure.on_maintenance_event("NONE")
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.departure.on_maintenance_event("NONE")
    assert not story.departure.is_announced
    story.departure.on_idle()
    story.clock.pass_until(T0 + 2 * GPU_NOTICE_S)
    assert story.did == [(0, "asked")]
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.departure.on_idle()
    assert story.did[1:] == [(2 * GPU_NOTICE_S, "asked"), (2 * GPU_NOTICE_S, "told maintenance")]


@pytest.mark.parametrize("nothing", ["{}", "{ }", "NONE", '"NONE"'])
def test_an_upcoming_maintenance_is_called_off_by(nothing: str) -> None:
    story = Story()
    story.upcoming(3_000)
    story.departure.on_upcoming(nothing)
    story.clock.pass_until(T0 + 3_000)
    assert story.did == [(0, "asked")]


def test_what_one_source_does_not_know_calls_nothing_off() -> None:
    story = Story(notice_s=GPU_NOTICE_S)
    story.upcoming(3_000)
    story.departure.on_maintenance_event("NONE")
    story.departure.on_upcoming('{"error": "no notifications have been received yet, try again later"}')
    assert story.departure.is_announced
    story.clock.pass_until(T0 + 3_000)
    assert story.did[-1] == (3_000 - REPLACE_S, "told maintenance")


def test_what_was_told_before_the_agent_died_is_not_told_again() -> None:
    story = Story(told=("maintenance",))
    story.departure.on_maintenance_event("TERMINATE_ON_HOST_MAINTENANCE")
    story.departure.on_preempted("TRUE")
    assert story.did == [(0, "asked"), (0, "told preemption")]


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ('{"window_start_time": "2026-09-21T14:13:20Z"}', T0),
        ('{"window_start_time": "2026-09-21T14:13:20.123456789Z"}', T0),
        ('{"window_start_time": "2026-09-21T07:13:20.000-07:00"}', T0),
        ('{"window_start_time": "2026-09-21T19:43:20+05:30"}', T0),
        ('{"windowStartTime": "2026-09-21T14:13:20Z"}', T0),  # as the REST API has it; seen on some machine types
        ('{"error": "no notifications have been received yet, try again later"}', None),
        ('{"window_start_time": "tomorrow"}', None),
        ('{"window_start_time": null}', None),
        ("{}", None),
        ("[]", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_a_window_is_read_from_what_the_metadata_server_says(text: str, at: float | None) -> None:
    assert window_start(text) == at


def test_a_program_that_saves_and_ends_has_neither_failed_nor_completed(cloud: Cloud, vm: Vm) -> None:
    vm.program(SAVES)
    vm.gang(checkpoint_signal="SIGUSR1")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.set("instance/upcoming-maintenance", json.dumps({"window_start_time": "2099-01-01T00:00:00Z"}))
    cloud.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    vm.wait_for_line("SAVED")
    assert cloud.wait_for_message("maintenance").body["cause"] == "maintenance"
    told = cloud.wait_for_message("replica-exit").body
    assert (told["cause"], told["exit_status"]) == ("vm_stopping", 0)
    assert [topic for topic, _ in cloud.said()] == ["vm-ready", "maintenance", "replica-exit"]


def test_the_signal_is_for_the_program_alone(cloud: Cloud, vm: Vm) -> None:
    """Its children, such as loaders of data, have no handler for it, and would die."""
    vm.program(
        """
        import signal, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import signal; print('CHILD'); signal.pause()"])
        signal.signal(signal.SIGUSR1, lambda *_: print("SAVED"))
        print("START")
        while True:
            signal.pause()
            print("CHILD ENDED" if child.poll() is not None else "CHILD LIVES")
        """
    )
    vm.gang(checkpoint_signal="SIGUSR1")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    vm.wait_for_line("CHILD")
    cloud.set("instance/preempted", "TRUE")
    vm.wait_for_line("SAVED")
    vm.wait_for_line("CHILD LIVES")
    cloud.wait_for_message("maintenance")
    assert [topic for topic, _ in cloud.said()] == ["vm-ready", "maintenance"]


def test_an_unsupported_question_is_asked_once(cloud: Cloud, vm: Vm) -> None:
    vm.program("import signal; print('START'); signal.pause()")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.direct(1, 2)
    vm.wait_for_line("START", 2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert len([path for path, _ in cloud.requests if path.endswith("upcoming-maintenance")]) == 1
