"""Reporting the exit of a program that was asked to save: after the maintenance event, or when the VM shuts down."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from trainmaster.agent.control.agent import Agent
from trainmaster.agent.control.exit_reporter import DELAY_S
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.setup import Setup

from .support.vm import agent_identity
from .test_shutdown_notice import T0, Clock

FIRST = IncarnationKey(1, 1)


class RecordingReporter(EventReporter):
    """Records events instead of publishing them."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def report_ready(self, key: IncarnationKey) -> None:
        self.events.append(f"ready {key.incarnation}")

    def report_exit(self, key: IncarnationKey, details: Mapping[str, object], accepted: Callable[[], None]) -> None:
        self.events.append(f"{details['cause']} {key.incarnation}")

    def report_maintenance(self, key: IncarnationKey, cause: str, accepted: Callable[[], None]) -> None:
        self.events.append(cause)

    def drop_before(self, key: IncarnationKey) -> None:
        pass

    def flush(self, timeout: float) -> None:
        self.events.append("flushed")


class EndlessProgram:
    """A program that never ends by itself. It also stands in for the launcher and the setup."""

    command = ()

    def start(self, key: IncarnationKey, secrets: Mapping[str, str], slices: Sequence[str]) -> EndlessProgram:
        return self

    def notify(self, number: int) -> None:
        pass

    def cancel(self) -> None:
        pass

    def wait(self, key: IncarnationKey, program: EndlessProgram) -> None:
        threading.Event().wait()


class PreemptedProgram:
    """An agent whose program has ended after a preemption notice."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.reporter = Clock(), RecordingReporter()
        console = Console(os.open(os.devnull, os.O_WRONLY))
        self.run_state = RunState(folder / "state.json", "1", self.reporter, console)
        self.agent = Agent(
            identity=agent_identity(),
            inbox=self.clock,
            reporter=self.reporter,
            run_state=self.run_state,
            setup=cast("Setup", EndlessProgram()),
            launcher=cast("Launcher", EndlessProgram()),
            console=console,
        )
        self.agent._on_directive('{"attempt": 1, "incarnation": 1, "action": "hold"}')
        self.agent._start(FIRST, {})
        self.agent._shutdown_notice.on_preempted("TRUE")
        self.agent._on_program_ended(FIRST, ProgramExit(0, None, out_of_memory=False, error=None, tail=""))


@pytest.fixture
def preempted(tmp_path: Path) -> PreemptedProgram:
    return PreemptedProgram(tmp_path)


def test_exit_after_preemption_is_reported_after_a_delay(preempted: PreemptedProgram) -> None:
    assert preempted.reporter.events == ["ready 1", "preemption"]
    preempted.clock.advance_to(T0 + DELAY_S)
    assert preempted.reporter.events == ["ready 1", "preemption", "vm_stopping 1"]


def test_exit_after_preemption_is_reported_at_once_on_shutdown(preempted: PreemptedProgram) -> None:
    preempted.agent._on_shutdown()
    preempted.clock.advance_to(T0 + DELAY_S)
    assert preempted.reporter.events == ["ready 1", "preemption", "vm_stopping 1", "flushed"]


def test_exit_after_preemption_is_dropped_if_another_incarnation_started(preempted: PreemptedProgram) -> None:
    preempted.agent._start(IncarnationKey(1, 2), {})
    preempted.clock.advance_to(T0 + DELAY_S)
    assert preempted.reporter.events == ["ready 1", "preemption", "ready 2"]
