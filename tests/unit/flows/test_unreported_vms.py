"""A VM whose agent's report of a ready program was lost, and which then vanishes: the replica gets
another VM.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World


@pytest.mark.parametrize(
    "end",
    [
        {"cause": "process", "exit_status": 1},
        {"cause": "process", "signal": 9},
        {"cause": "vm_restarted"},
    ],
    ids=["exit", "signal", "reboot"],
)
def test_vm_that_only_an_exit_named_is_lost_when_it_vanishes(end: dict[str, object]) -> None:
    world = World(silent={WORKER_0})
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        world.send("vm-ready", replica_id)
    vm = world.vm(WORKER_0)
    world.send("replica-exit", WORKER_0, **end)
    assert world.replica(WORKER_0).instance_id == vm.instance_id
    world.fleet.delete(vm)
    world.provision()
    world.deliver()
    assert world.replica(WORKER_0).vm_generation == 2
    assert world.vm(WORKER_0).vm_generation == 2
    world.check()
