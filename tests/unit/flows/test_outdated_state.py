"""A delivery that has read a state before another one changed it, and VMs that only a lost state
can have ordered.

A *directive* in a VM's metadata orders its agent what to run: attempt and incarnation, the
execution of the program within it. A database that was restored from a backup has a state that is
older than the directives of its VMs.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import WORKER_0, WORKER_1
from tests.support.world import World
from tests.unit.flows.sweep_helpers import sweep
from trainmaster.core.model.vm import Directive, DirectiveAction


def ids(world: World) -> dict[str, str]:
    """Return name and instance id of each VM; a VM that is created again has another id."""
    return {vm.name: vm.instance_id for vm in world.vms}


def test_vms_that_are_newer_than_an_outdated_state_are_kept(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ids(running)
    list_vms = running.fleet.list_vms
    calls: list[str] = []

    def change_and_list(*arguments: Any, **options: Any) -> Any:
        calls.append("list")
        if len(calls) == 1:
            running.exit_program(WORKER_0)  # and another delivery directs its VM
            second = Directive(attempt=1, incarnation=2, action=DirectiveAction.RUN)
            running.fleet.write_directive(running.vm(WORKER_0), second)
            calls.append("changed")
        return list_vms(*arguments, **options)

    monkeypatch.setattr(running.fleet, "list_vms", change_and_list)
    running.provision()
    assert "changed" in calls
    monkeypatch.undo()
    sweep(running, times=12)
    assert ids(running) == before
    assert (running.state, running.replica(WORKER_0).incarnation) == ("RUNNING", 2)


@pytest.mark.parametrize(
    "order",
    [
        Directive(attempt=1, incarnation=4, action=DirectiveAction.RUN),
        Directive(attempt=2, incarnation=1, action=DirectiveAction.HOLD),
    ],
    ids=["incarnation", "attempt"],
)
def test_vm_with_an_order_of_a_lost_state_is_replaced_free_of_charge(
    running: World, order: Directive
) -> None:
    before = ids(running)
    changed = running.vm(WORKER_1).name
    running.fleet.write_directive(running.vm(WORKER_1), order)
    sweep(running, times=12)
    running.report_all_ready()
    running.deliver()
    assert {name for name, vm_id in ids(running).items() if vm_id != before[name]} == {changed}
    assert (running.state, running.job.attempt) == ("RUNNING", 1)
    assert running.replica(WORKER_1).restarts_used == 0
    running.check()
