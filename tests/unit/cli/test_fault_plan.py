"""The faults of `trainmaster local run --faults`, each after its number of epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.world import World
from trainmaster_local.cli.run_example import FaultPlan


class Faults:
    """Notes the faults: their kind, the index of the worker, and the notice in seconds."""

    def __init__(self) -> None:
        self.injected: list[tuple[str, str, float | None]] = []

    def kill_program(self, vm: str) -> None:
        self.injected.append(("kill", vm.rpartition("-worker-")[2], None))

    def preempt(self, vm: str, notice_s: float | None) -> None:
        self.injected.append(("preempt", vm.rpartition("-worker-")[2], notice_s))


def test_planned_faults_are_injected_once_each_after_their_epochs_while_the_job_runs() -> None:
    world = World()
    world.submit()
    monitor: Any = SimpleNamespace(job_id="digits_1", epochs=3)
    faults: Any = Faults()
    plan = FaultPlan(monitor, faults, report=SimpleNamespace(line=lambda *_: None))  # type: ignore[arg-type]
    plan.inject_due_faults(world.job)
    assert faults.injected == [], "the job does not run yet"
    world.deliver()
    world.report_all_ready()
    for monitor.epochs in (2, 3, 7, 8, 9):
        plan.inject_due_faults(world.job)
        assert plan.is_complete == (monitor.epochs >= 8)
    assert faults.injected == [("kill", "0", None), ("preempt", "1", 2.0)]
