"""When a VM ends itself, because the job's `maxCost` pays for no more time.

A *directive*, an order to the agent in the VM's metadata, says until when the VM is paid for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.shutdown.paid_time import UP_MIN_S, PaidTime
from trainmaster.agent.shutdown.power_off import power_off
from trainmaster.agent.workspace import EMULATED_VM, Workspace

START_S = 1_800_000_000.0


@dataclass
class Machine:
    """A machine with a clock that may be wrong, and timers."""

    skew_s: float = 0.0
    """How far its clock is ahead."""
    passed_s: float = 0.0
    answers: bool = True
    """Whether the metadata server says what time it is."""
    ended_s: list[float] = field(default_factory=list)
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = SimpleNamespace(
            monotonic_s=lambda: 1e5 + self.passed_s,
            now_s=lambda: START_S + self.passed_s + self.skew_s,
        )
        inbox = SimpleNamespace(
            clock=clock,
            post_later=lambda delay_s, handler: self.timers.append(
                (self.passed_s + delay_s, handler)
            ),
            post=lambda handler, *arguments: handler(*arguments),
            start_thread=lambda work: work(),
        )
        self.paid_time = PaidTime(
            cast("Any", inbox),
            cast("Any", SimpleNamespace(log=lambda text: None)),
            self.read_time,
            lambda: self.ended_s.append(self.passed_s),
        )

    def read_time(self) -> str:
        if not self.answers:
            raise HttpError(0, "no answer")
        return datetime.fromtimestamp(START_S + self.passed_s, UTC).isoformat()

    def direct(self, paid_s: float) -> None:
        """Write a directive that pays for the first `paid_s` seconds; 0: without end."""
        until = START_S + paid_s if paid_s else 0.0
        directive = ReceivedDirective(IncarnationKey(1, 1), "run", paid_until=until)
        self.paid_time.on_directive(directive)

    def advance(self, seconds: float) -> None:
        until_s = self.passed_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= until_s]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.passed_s, handler = first
            handler()
        self.passed_s = until_s


@pytest.mark.parametrize("skew_s", [-1500.0, 0.0, 1500.0])
def test_machine_ends_at_the_time_by_the_metadata_server(skew_s: float) -> None:
    machine = Machine(skew_s)
    for _ in range(2):  # an agent may read the same directive again
        machine.direct(1000)
    machine.advance(999)
    assert machine.ended_s == []
    machine.advance(5000)
    assert machine.ended_s == [1000]


def test_later_directive_extends_the_time_and_one_without_it_ends_it() -> None:
    machine = Machine()
    machine.direct(1000)
    machine.advance(900)
    machine.direct(2000)
    machine.advance(1000)
    assert machine.ended_s == []
    machine.direct(0)
    machine.advance(9000)
    assert machine.ended_s == []


def test_machine_that_has_just_started_waits_for_a_new_directive() -> None:
    """The directive that it was created with may be days old, as that of a TPU slice from Cloud
    TPU's queue.
    """
    machine = Machine()
    machine.direct(-5000)
    machine.advance(UP_MIN_S - 1)
    assert machine.ended_s == []
    machine.advance(1)
    assert machine.ended_s == [UP_MIN_S]


def test_without_an_answer_the_own_clock_counts() -> None:
    machine = Machine(answers=False)
    machine.direct(1000)
    machine.advance(1000)
    assert machine.ended_s == [1000]


@pytest.mark.parametrize(
    ("programs", "called"),
    [  # commands that the machine has, "!": one that fails; the calls
        (("systemctl", "shutdown"), ["systemctl poweroff"]),
        (("shutdown",), ["shutdown -h now"]),
        (("!systemctl", "poweroff"), ["systemctl poweroff", "poweroff"]),
        ((), []),
    ],
)
def test_power_off_takes_the_first_command_that_works(
    tmp_path: Path, programs: tuple[str, ...], called: list[str]
) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    for program in programs:
        name = program.lstrip("!")
        file = tmp_path / name
        file.write_text(f'#!/bin/sh\necho "{name} $@" >>{calls}\nexit {int(name != program)}\n')
        file.chmod(0o755)
    console = Console(os.open(os.devnull, os.O_WRONLY))
    power_off(Workspace(tmp_path, {"PATH": str(tmp_path)}, console))
    assert [line.strip() for line in calls.read_text().splitlines()] == called
    power_off(Workspace(tmp_path, {"PATH": str(tmp_path), EMULATED_VM: "vm"}, console))
    assert len(calls.read_text().splitlines()) == len(called), "an emulated VM stays on"
