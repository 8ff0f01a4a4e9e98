"""Histories in which the agent dies between any two writes of its state file.

`ScriptedVm` runs the real agent through events. Its `facts` are what the agent did, such as
"start 1": it started incarnation 1 of the program; "held 2, process 1": it reported that it could
start incarnation 2, and that a process of incarnation 1 had exited.
"""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis
import pytest

from tests.support.scripted_agent import EVENTS, PROGRAM_ENDS, SET_UP, SHUTDOWN, ScriptedVm
from trainmaster.agent.control.state_file import StoredState

HISTORIES = 300 if hypothesis.settings().max_examples > 150 else 100


class CrashError(Exception):
    pass


class Disk:
    """Lets the agent die before or after a write of its state file.

    `crash_before` and `crash_after` say at which write from now; 0 and less: at none.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._save = StoredState.save
        self.crash_before = self.crash_after = 0
        monkeypatch.setattr("os.fsync", lambda _: None)

        def save(state: StoredState, path: Path) -> None:
            self._save_or_crash(state, path)

        monkeypatch.setattr(StoredState, "save", save)

    def _save_or_crash(self, state: StoredState, path: Path) -> None:
        self.crash_before -= 1
        self.crash_after -= 1
        if self.crash_before == 0:
            raise CrashError
        self._save(state, path)
        if self.crash_after == 0:
            raise CrashError


def ran_through(vm: ScriptedVm, *history: str) -> ScriptedVm:
    """Run the history, up to a crash of the disk, which the agent survives as a new process."""
    try:
        return vm.run(*history)
    except CrashError:
        return vm.crash()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_agent_that_dies_at_any_time_starts_nothing_twice_and_reports_true_ends(
    disk: Disk, tmp_path: Path
) -> None:
    choice = random.Random(2)  # noqa: S311 - reproducible histories, no secrets
    events = [event for event in EVENTS if event != SHUTDOWN]
    reported_ends = set()
    for number in range(HISTORIES):
        vm = ScriptedVm(tmp_path / f"{number}.json")
        for _ in range(3):
            disk.crash_before, disk.crash_after = choice.randint(-3, 6), choice.randint(-3, 6)
            ran_through(vm, *choice.choices(events, k=10)).crash()
        disk.crash_before = disk.crash_after = 0
        vm.run(PROGRAM_ENDS, SET_UP, SET_UP)
        starts = [fact for fact in vm.facts if fact.startswith("start ")]
        assert len(starts) == len(set(starts)), vm.facts
        reported_ends |= ends_in(vm)
        if vm.action == "hold":
            # The hold is answered: with an exit of its incarnation, or by the last report.
            exits = {
                f"{cause} {vm.incarnation}"
                for cause in ("setup", "start", "process", "vm_restarted")
            }
            assert exits & set(vm.facts) or vm.facts[-1].startswith(f"held {vm.incarnation}"), (
                vm.facts
            )
    assert {("process", "own"), ("vm_restarted", "crash")} <= reported_ends


def ends_in(vm: ScriptedVm) -> set[tuple[str, str]]:
    """Check what each vm-ready under `hold` says about the program before; return the causes,
    reported and true.
    """
    found, started = set(), 0
    for fact in vm.facts:
        if fact.startswith("start "):
            started = int(fact.split()[1])
        if fact.startswith("held ") and started in vm.ends:
            end = vm.ends[started]
            cause, incarnation = fact.split(", ")[1].split() if "," in fact else ("", started)
            if cause and int(incarnation) == started:
                assert end != "directive", vm.facts
                found.add((cause, end))
            if end == "own" and started not in vm.withdrawn:
                assert cause, vm.facts
    return found
