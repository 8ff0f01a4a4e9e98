"""Replicas that never spoke, and those whose time to speak is not over."""

from __future__ import annotations

import pytest

from shared.core.decisions import Reason
from shared.core.events import IncarnationRef, VmLost, VmRef
from shared.core.model.replica import ReplicaState
from shared.core.model.vm import LossCause
from shared.core.model.vm_names import vm_name
from shared.core.timeouts import STARTUP_TIMEOUT_S
from shared.errors import TemporaryError
from shared.flows.record import record
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from tests.unit.flows.sweeping import entry, must, told


def silent_at(world: World, seconds: float) -> bool:
    """Whether a sweep then finds a replica silent."""
    before = len(world.ledger)
    world.wait(seconds)
    world.sweep()
    world.deliver()
    return Reason.STARTUP_TIMEOUT in [each.decision.reason for each in world.ledger[before:]]


def test_an_agent_that_never_speaks_gets_another_vm_after_twenty_minutes(world: World) -> None:
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        world.tell("vm-ready", replica_id)
    old = must(world.vm(WORKER_0))
    assert not silent_at(world, STARTUP_TIMEOUT_S - 3)
    assert silent_at(world, 1)
    replica = world.replica(WORKER_0)
    assert (replica.state, replica.vm_generation, replica.restarts_used) == (ReplicaState.REPLACING, 2, 0)
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    assert not silent_at(world, STARTUP_TIMEOUT_S - 1), "the new VM has its own time"
    world.tell("vm-ready", WORKER_0)
    assert world.state == "RUNNING"
    world.check()


def test_a_restart_that_never_comes_up_in_its_vm_gets_another(running: World) -> None:
    world = running
    world.wait(7200)
    world.kill(WORKER_0)
    world.deliver()
    assert not silent_at(world, STARTUP_TIMEOUT_S - 1)
    assert silent_at(world, 1)
    assert must(world.vm(WORKER_0)).vm_generation == 2
    world.check()


def test_a_replica_that_runs_is_never_silent(running: World) -> None:
    assert not silent_at(running, 5 * 3600)


def an_hour_of_creating(world: World) -> None:
    world.fleet.is_slow = True
    world.bus.drain()
    for _ in range(6):
        with pytest.raises(TemporaryError):
            world.provision()
        world.wait(600)
    world.fleet.settle()
    world.fleet.is_slow = False


def test_a_slow_create_is_not_silence_and_time_counts_from_when_the_vm_came_up(world: World) -> None:
    world.submit()
    an_hour_of_creating(world)
    assert not silent_at(world, STARTUP_TIMEOUT_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_waiting_for_capacity_is_not_silence(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = {f"us-central1-{letter}" for letter in "abcdef"}
    for _ in range(6):
        world.bus.drain()
        world.provision()
        world.wait(600)
    world.fleet.stockout_zones = set()
    world.provision()
    assert len(world.vms) == 3
    assert not silent_at(world, STARTUP_TIMEOUT_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_a_held_replica_has_its_time_from_when_its_peers_are_back(running: World) -> None:
    world = running
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.fleet.vanish(vm_name("digits_1", WORKER_0))
    world.fail(CHIEF, error={"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"})
    an_hour_of_creating(world)
    world.tell("vm-ready", WORKER_0)
    world.deliver()
    assert world.replica(CHIEF).state is ReplicaState.HELD
    assert not silent_at(world, STARTUP_TIMEOUT_S - 2)
    assert silent_at(world, 2)
    assert world.replica(CHIEF).state is ReplicaState.REPLACING
    world.check()


def test_a_replica_that_died_of_an_old_loss_has_its_time_from_when_it_died(running: World) -> None:
    world = running
    world.tell("maintenance", WORKER_0, cause="preemption")
    world.deliver()
    world.tell("vm-ready", WORKER_0)
    world.wait(7200)
    world.fail(CHIEF, error={"type": "UnavailableError", "message": "Socket closed", "frame": "ops.py:1 in f"})
    world.deliver()
    assert world.replica(CHIEF).state is ReplicaState.HELD
    assert not silent_at(world, STARTUP_TIMEOUT_S - 1)
    assert silent_at(world, 1)
    world.check()


def test_a_silence_that_was_broken_in_time_does_not_hide_the_machines_later_loss(running: World) -> None:
    world = running
    replica, vm = world.replica(WORKER_0), must(world.vm(WORKER_0))
    subject = IncarnationRef(
        "digits_1", 1, WORKER_0, replica.incarnation, replica.vm_generation, VmRef(vm.name, vm.zone, vm.instance_id)
    )
    found = record("digits_1", VmLost(subject, world.now, LossCause.STARTUP_TIMEOUT), world.deps)
    assert found.entry.decision.kind == "ignore"
    told(world, entry(vm, "hostError"))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    world.check()


def test_two_sweeps_that_both_find_a_silence_replace_one_vm(world: World) -> None:
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        world.tell("vm-ready", replica_id)
    world.wait(STARTUP_TIMEOUT_S)
    world.sweep()
    world.sweep()
    world.deliver()
    assert world.replica(WORKER_0).vm_generation == 2
    world.check()
