"""The exit of a program that was told that its VM goes: after the announcement, which says more, or with the VM."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from shared.agent.control.agent import LAST_WORD_S, Agent
from shared.agent.control.run_state import Lives
from shared.agent.control.vm_config import Key
from shared.agent.program.launcher import Launcher
from shared.agent.program.program import Ended
from shared.agent.reporting.events import Report
from shared.agent.reporting.serial_console import Console
from shared.agent.setup.setup import Setup

from .support.vm import replica_id
from .test_departure import T0, Clock

FIRST = Key(1, 1)


class Told(Report):
    """Remembers instead of publishing."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def ready(self, key: Key) -> None:
        self.said.append(f"ready {key.incarnation}")

    def exit(self, key: Key, fact: Mapping[str, object], accepted: Callable[[], None]) -> None:
        self.said.append(f"{fact['cause']} {key.incarnation}")

    def fault(self, key: Key, cause: str, accepted: Callable[[], None]) -> None:
        self.said.append(cause)

    def drop_before(self, key: Key) -> None:
        pass

    def flush(self, timeout: float) -> None:
        self.said.append("flushed")


class Endless:
    """A program that ends when the test says so; whoever starts it, and what is set up before, is this as well."""

    command = ()

    def start(self, key: Key, secrets: Mapping[str, str], slices: Sequence[str]) -> Endless:
        return self

    def notify(self, number: int) -> None:
        pass

    def cancel(self) -> None:
        pass

    def wait(self, key: Key, program: Endless) -> None:
        threading.Event().wait()


class Story:
    """A program that runs, on a VM that is about to go, has ended."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.told = Clock(), Told()
        console = Console(os.open(os.devnull, os.O_WRONLY))
        self.incarnations = Lives(folder / "state.json", "1", self.told, console)
        self.agent = Agent(
            gang=replica_id().gang,
            inbox=self.clock,
            report=self.told,
            incarnations=self.incarnations,
            setup=cast("Setup", Endless()),
            launcher=cast("Launcher", Endless()),
            console=console,
        )
        self.agent._on_directive('{"attempt": 1, "incarnation": 1, "action": "hold"}')
        self.agent._start(FIRST, {})
        self.agent._departure.on_preempted("TRUE")
        self.agent._on_program_ended(FIRST, Ended(0, None, out_of_memory=False, error=None, tail=""))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_it_comes_some_seconds_after_the_announcement(story: Story) -> None:
    assert story.told.said == ["ready 1", "preemption"]
    story.clock.pass_until(T0 + LAST_WORD_S)
    assert story.told.said == ["ready 1", "preemption", "vm_stopping 1"]


def test_it_comes_with_the_vms_shutdown_and_before_the_last_words_are_flushed(story: Story) -> None:
    story.agent._on_shutdown()
    story.clock.pass_until(T0 + LAST_WORD_S)
    assert story.told.said == ["ready 1", "preemption", "vm_stopping 1", "flushed"]


def test_it_is_no_news_once_another_life_has_begun(story: Story) -> None:
    story.agent._start(Key(1, 2), {})
    story.clock.pass_until(T0 + LAST_WORD_S)
    assert story.told.said == ["ready 1", "preemption", "ready 2"]
