"""A run whose steps fail or are interrupted: the others run, everything is removed, and the result
is printed.

A step may note facts, and the result compares them with what Trainmaster assumes of Google Cloud.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from smoke.run import smoke
from smoke.steps import Outcome, Step, run
from smoke.world import Output, ProcessCommands, SkippedError, StepError, World


def no_commands(*argv: str, timeout_s: float = 0) -> Output:
    raise AssertionError(f"unexpected command {argv}")


def a_world() -> World:
    nothing = cast(Any, None)
    return World(
        "my-project",
        "us-central1",
        "bucket",
        no_commands,
        store=nothing,
        fleet=nothing,
        advisor=nothing,
        objects=nothing,
        metrics=nothing,
        packages=Path(),
        container_image="",
        api="",
        report=lambda _: None,
    )


@dataclass
class FakeInstallation:
    events: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[World]:
        self.events.append("installed")
        try:
            yield a_world()
        finally:
            self.events.append("removed")


def fail(_: World) -> None:
    raise StepError("the job FAILED")


def interrupt(_: World) -> None:
    raise KeyboardInterrupt


UNEXPECTED_PYTHON = "2.7"


def note(world: World) -> None:
    """Note a fact that contradicts an assumption: the version of Python on the VMs."""
    world.saw("python", UNEXPECTED_PYTHON)


def skip(_: World) -> None:
    raise SkippedError("no engine")


def test_failed_step_skips_only_the_steps_that_need_it() -> None:
    steps = [
        Step("a", fail),
        Step("b", note, ("a",)),
        Step("c", note),
        Step("d", skip),
        Step("e", note, ("d",)),
    ]
    results = list(run(a_world(), steps))
    assert [(result.name, result.outcome) for result in results] == [
        ("a", Outcome.FAILED),
        ("b", Outcome.SKIPPED),
        ("c", Outcome.OK),
        ("d", Outcome.SKIPPED),
        ("e", Outcome.SKIPPED),
    ]
    assert [result.text for result in results[:2]] == ["the job FAILED", "it needs a"]


def test_run_with_a_failed_step_removes_everything_and_names_it() -> None:
    installation, lines = FakeInstallation(), list[str]()
    assert smoke(installation, lines.append, [Step("digits", fail), Step("c", note)]) == 1
    assert installation.events == ["installed", "removed"]
    assert lines[-1].endswith("Failed steps: digits.")
    assert any("DIFFERENT" in line and UNEXPECTED_PYTHON in line for line in lines), (
        "facts of later steps are compared"
    )


def test_interrupted_run_removes_everything_and_prints_what_it_saw() -> None:
    installation, lines = FakeInstallation(), list[str]()
    with pytest.raises(KeyboardInterrupt):
        smoke(installation, lines.append, [Step("a", note), Step("b", interrupt)])
    assert installation.events == ["installed", "removed"]
    assert any("DIFFERENT" in line and UNEXPECTED_PYTHON in line for line in lines)
    assert any(line.startswith("| a ") for line in lines), "the step that had ended is in the table"


def test_interrupted_command_gets_sigint_and_time_to_store_its_state(tmp_path: Path) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    script = f"trap 'sleep 0.3; touch {tmp_path}/stored; exit 1' INT; while :; do sleep 0.1; done"
    with pytest.raises(KeyboardInterrupt):
        ProcessCommands({})("sh", "-c", script)
    assert (tmp_path / "stored").exists()


def test_command_that_is_missing_or_does_not_end_is_an_output_with_a_status() -> None:
    commands = ProcessCommands({})
    assert commands("no-such-program").errors == "no-such-program is not installed"
    assert commands("sleep", "5", timeout_s=0.1).status == 124
