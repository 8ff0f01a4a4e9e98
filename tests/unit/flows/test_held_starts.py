"""Every VM starts held: its program runs only when its first report is stored, and that of a member
when all members of its round, their common start, are ready.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import DirectiveAction, Vm

A, B = "us-central1-a", "us-central1-b"
ALONE = {"independentReplicas": True}


def submitted(**options: Any) -> World:
    world = World()
    world.submit({**a_spec(), "trainmaster": {"zones": [A, B], **options}})
    world.deliver()
    return world


def may_run(world: World, replica_id: ReplicaId) -> list[str]:
    """Return the instance ids of the replica's VMs that are directed to run a program."""
    return [
        vm.instance_id
        for vm in world.vms
        if vm.replica_id == replica_id and _action(vm) is DirectiveAction.RUN
    ]


def _action(vm: Vm) -> DirectiveAction | None:
    return vm.directive.action if vm.directive else None


@pytest.mark.parametrize("options", [{}, ALONE], ids=["synchronous", "alone"])
def test_vms_are_created_held(options: dict[str, Any]) -> None:
    world = submitted(**options)
    assert {_action(vm) for vm in world.vms} == {DirectiveAction.HOLD}
    for replica in world.replicas:
        assert may_run(world, replica.replica_id) == []


def test_replica_that_is_judged_alone_runs_when_its_vm_is_known() -> None:
    world = submitted(**ALONE)
    world.send("vm-ready", CHIEF)
    assert may_run(world, CHIEF) == [], "nothing was written yet"
    world.deliver()
    assert may_run(world, CHIEF) == [world.replica(CHIEF).instance_id]
    assert (may_run(world, WORKER_0), world.state) == ([], "PREPARING")
    world.check()


def test_members_run_when_all_are_ready_and_the_job_runs_with_them() -> None:
    world = submitted()
    for replica_id in (CHIEF, WORKER_0):
        world.send("vm-ready", replica_id)
        world.deliver()
    assert (may_run(world, CHIEF), world.state) == ([], "PREPARING")
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert all(may_run(world, member) for member in (CHIEF, WORKER_0, WORKER_1))
    assert world.state == "RUNNING"
    assert world.ledger[-1].decision.text == "Every replica is ready: the job is running."
    world.check()


def test_start_of_a_gang_whose_last_report_met_the_lease_is_found_by_the_sweep() -> None:
    """Another delivery held the lease of the job, so that the request of the report ended."""
    world = submitted()
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("vm-ready", replica_id)
    world.bus.drain()
    assert world.state == "PREPARING"
    world.wait(60)
    world.sweep()
    world.deliver()
    assert world.state == "RUNNING"


def test_gang_waits_for_its_evaluator_as_for_a_member() -> None:
    world = World()
    world.submit(a_spec(evaluatorCount=1, evaluatorType="n1-standard-4"))
    world.deliver()
    *others, evaluator = [replica.replica_id for replica in world.replicas]
    for replica_id in others:
        world.send("vm-ready", replica_id)
    world.deliver()
    assert (world.state, may_run(world, CHIEF)) == ("PREPARING", [])
    world.send("vm-ready", evaluator)
    world.deliver()
    assert world.state == "RUNNING"
    assert all(may_run(world, replica_id) for replica_id in (*others, evaluator))


def test_vm_whose_report_was_lost_and_that_vanishes_has_run_nothing() -> None:
    world = submitted(**ALONE)
    for replica_id in (CHIEF, WORKER_1):
        world.send("vm-ready", replica_id)
    world.deliver()
    assert may_run(world, WORKER_0) == []
    world.fleet.delete(world.vm(WORKER_0))
    world.provision()
    world.deliver()
    assert (world.replica(WORKER_0).vm_generation, may_run(world, WORKER_0)) == (1, [])


def test_member_whose_vm_is_lost_before_the_first_round_delays_it_and_nobody_is_charged() -> None:
    world = submitted()
    for replica_id in (CHIEF, WORKER_0):
        world.send("vm-ready", replica_id)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    assert (world.job.round.number, world.job.round.is_held) == (1, True)
    world.send("vm-ready", WORKER_1)
    world.deliver()
    assert (world.state, world.job.round.number) == ("RUNNING", 1)
    assert [replica.restarts_used for replica in world.replicas] == [0, 0, 0]
    world.check()


def test_program_of_a_replacement_waits_until_the_vm_before_it_no_longer_runs() -> None:
    world = submitted(**ALONE)
    world.report_all_ready()
    before = world.vm(WORKER_0)
    world.fleet.is_slow = True
    world.send("maintenance", WORKER_0, cause="maintenance")
    world.provision()
    assert before.instance_id in may_run(world, WORKER_0), "it is STOPPING"
    world.fleet.settle()
    world.provision()
    world.fleet.settle()
    world.fleet.is_slow = False
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.deliver()
    assert may_run(world, WORKER_0) == [world.replica(WORKER_0).instance_id]
    assert world.replica(WORKER_0).instance_id != before.instance_id
