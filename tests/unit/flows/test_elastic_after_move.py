"""An elastic gang that moves to another zone starts there with all of its replicas.

The round, a common start of the members, is held until then. `world.silent` are replicas whose
agents do not report: their VMs boot.
"""

from __future__ import annotations

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.unit.flows.test_elastic import A, B, lose, pass_minutes, running, start
from trainmaster.core.timeouts import BOOT_MAX


def test_elastic_after_move_waits_for_a_vm_that_boots_slowly() -> None:
    world = start()
    world.silent |= {CHIEF, WORKER_0, WORKER_1}
    world.fleet.stockout_zones = {A}
    for vm in world.vms:
        world.send("maintenance", vm.replica_id, cause="preemption")
    world.deliver()
    pass_minutes(world)
    assert {vm.zone for vm in world.vms} == {B}
    world.silent.clear()
    world.silent.add(WORKER_1)
    pass_minutes(world, int(BOOT_MAX.total_seconds()) // 60 - 3)
    assert world.job.round.is_held, "nobody has refused its VM here"
    number = world.job.round.number
    world.silent.clear()
    pass_minutes(world)
    assert running(world) == (number, []), "one round, with all members"
    world.check()


def test_replacement_that_boots_within_five_minutes_costs_one_round() -> None:
    """A VM with GPUs takes longer than two minutes."""
    world = start()
    world.silent.add(WORKER_1)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    pass_minutes(world, 3)
    world.silent.clear()
    pass_minutes(world)
    assert running(world) == (2, [])


def test_vm_that_boots_is_waited_for_also_if_it_was_refused_at_first() -> None:
    world = start(elastic={"after": "120s"})
    world.silent.add(WORKER_1)
    lose(world, WORKER_1)
    assert world.job.placement.next_at is not None
    world.fleet.capacity.clear()
    pass_minutes(world, 4)
    assert world.find_vm(WORKER_1) is not None
    assert world.job.round.is_held, "it boots"
    world.silent.clear()
    pass_minutes(world)
    assert running(world) == (2, [])
