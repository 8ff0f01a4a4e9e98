"""Startup timeout: replicas whose agent never reports get another VM, and others do not.

The generation of a VM tells it from earlier VMs of the same replica.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.counting import Counts, counting_fleet
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from tests.unit.flows.sweep_helpers import audit_log_entry, deliver_entry
from trainmaster.core.decisions import Reason
from trainmaster.core.events import IncarnationRef, VmLost, VmRef
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.reconcile import heartbeat
from trainmaster.core.timeouts import AGENT_TIMEOUT, SETUP_MAX_S, STARTUP_TIMEOUT_S
from trainmaster.flows import provision
from trainmaster.flows.commit.record import record
from trainmaster.messaging.internal_requests import ProvisionRequest


@pytest.fixture
def world() -> World:
    """A world whose replicas are judged each alone."""
    return World(is_independent=True)


def times_out_after(world: World, seconds: float) -> bool:
    """Wait, sweep, and return whether the sweep found a startup timeout."""
    before = len(world.ledger)
    world.wait(seconds)
    world.sweep()
    world.deliver()
    return Reason.STARTUP_TIMEOUT in [entry.decision.reason for entry in world.ledger[before:]]


def test_replica_without_a_report_gets_another_vm_after_the_startup_timeout(world: World) -> None:
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        world.send("vm-ready", replica_id)
    old = world.vm(WORKER_0)
    reports_s = 2  # in a `World`, each message takes a second
    assert not times_out_after(world, STARTUP_TIMEOUT_S - reports_s - 1)
    assert times_out_after(world, 1)
    replica = world.replica(WORKER_0)
    assert (replica.state, replica.vm_generation, replica.restarts_used) == (
        ReplicaState.REPLACING,
        2,
        0,
    )
    world.wait(120)  # the pause
    world.provision()
    assert world.vm(WORKER_0).instance_id != old.instance_id
    assert not times_out_after(world, STARTUP_TIMEOUT_S - 1), "the new VM has a timeout of its own"
    world.send("vm-ready", WORKER_0)
    assert world.state == "RUNNING"
    world.check()


def set_up_slowly(world: World, seconds: float) -> bool:
    """Let the agents write heartbeats while they set up.

    Return whether the sweep found a startup timeout.
    """
    found = False
    for _ in range(int(seconds) // 60):
        for vm in world.vms:
            world.fleet.beat(vm.name)
        found |= times_out_after(world, 60)
    return found


def test_set_up_with_heartbeats_may_take_longer_than_the_startup_timeout(world: World) -> None:
    world.submit()
    world.deliver()
    assert not set_up_slowly(world, SETUP_MAX_S - 60)
    world.report_all_ready()
    assert (world.state, world.replica(WORKER_0).vm_generation) == ("RUNNING", 1)
    world.check()


def test_set_up_that_hangs_beside_its_heartbeats_ends(world: World) -> None:
    world.submit()
    world.deliver()
    assert not set_up_slowly(world, SETUP_MAX_S - 60)
    assert set_up_slowly(world, 60)
    world.check()


def test_vm_whose_heartbeats_end_during_the_set_up_times_out(world: World) -> None:
    world.submit()
    world.deliver()
    assert not set_up_slowly(world, STARTUP_TIMEOUT_S)
    assert not times_out_after(world, AGENT_TIMEOUT.total_seconds() - 61)
    assert times_out_after(world, 1)
    world.check()


def test_heartbeat_of_one_vm_suspends_only_its_own_timeout(world: World) -> None:
    world.submit()
    world.deliver()
    world.wait(STARTUP_TIMEOUT_S - 10)
    world.fleet.beat(world.vm(WORKER_0).name)
    assert times_out_after(world, 10)
    assert [
        world.replica(replica_id).vm_generation for replica_id in (CHIEF, WORKER_0, WORKER_1)
    ] == [2, 1, 2]
    world.check()


def test_heartbeats_of_starting_vms_are_read_only_after_the_timeout_and_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEATS_READ_MAX", 2)
    counts = Counts()
    fleet_deps = replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts))
    world.submit()
    world.deliver()
    for reads, seconds in ((0, STARTUP_TIMEOUT_S - 60), (2, 60), (3, 60)):
        world.wait(seconds)
        for vm in world.vms:
            world.fleet.beat(vm.name)
        provision.handle(ProvisionRequest(world.job_id), fleet_deps, world.deps)
        assert counts.calls["last_heartbeat"] == reads
    assert {vm.vm_generation for vm in world.vms} == {1}


def test_restart_without_a_report_gets_another_vm(running: World) -> None:
    world = running
    world.wait(7200)
    world.kill(WORKER_0)
    world.deliver()
    assert not times_out_after(world, STARTUP_TIMEOUT_S - 1)
    assert times_out_after(world, 1)
    assert world.vm(WORKER_0).vm_generation == 2
    world.check()


def test_running_replica_never_times_out(running: World) -> None:
    assert not times_out_after(running, 5 * 3600)


def create_slowly(world: World) -> None:
    """Let the creation of the VMs take an hour."""
    world.fleet.is_slow = True
    world.bus.drain()
    for _ in range(6):
        world.provision()
        world.wait(600)
    world.fleet.settle()
    world.fleet.is_slow = False


def test_timeout_counts_from_the_start_of_the_vm_after_a_slow_creation(world: World) -> None:
    world.submit()
    create_slowly(world)
    assert not times_out_after(world, STARTUP_TIMEOUT_S - 1)
    assert times_out_after(world, 1)
    world.check()


def test_timeout_counts_from_the_start_of_the_vm_after_waiting_for_capacity(world: World) -> None:
    world.submit()
    world.fleet.stockout_zones = {f"us-central1-{letter}" for letter in "abcdef"}
    for _ in range(6):
        world.bus.drain()
        world.provision()
        world.wait(600)
    world.fleet.stockout_zones = set()
    world.provision()
    assert len(world.vms) == 3
    assert not times_out_after(world, STARTUP_TIMEOUT_S - 1)
    assert times_out_after(world, 1)
    world.check()


def test_timeout_of_a_held_member_counts_from_the_end_of_the_round_before() -> None:
    world = World(silent={CHIEF})
    world.start_running()
    world.deliver()
    world.wait(7200)
    world.exit_program(WORKER_0)
    world.deliver()
    assert not times_out_after(world, STARTUP_TIMEOUT_S - 150)
    assert world.job.round.is_held
    assert times_out_after(world, 150)
    assert world.replica(CHIEF).vm_generation == 2
    world.check()


def test_ignored_startup_timeout_does_not_hide_a_later_loss_of_the_vm(running: World) -> None:
    world = running
    replica, vm = world.replica(WORKER_0), world.vm(WORKER_0)
    subject = IncarnationRef(
        "digits_1",
        attempt=1,
        replica_id=WORKER_0,
        incarnation=replica.incarnation,
        vm_generation=replica.vm_generation,
        vm=VmRef(vm.name, vm.zone, vm.instance_id),
    )
    recorded = record(VmLost(subject, world.now, LossCause.STARTUP_TIMEOUT), world.deps)
    assert recorded.entry.decision.action.kind == "ignore"
    deliver_entry(world, audit_log_entry(vm, "hostError"))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    world.check()


def test_two_sweeps_that_find_the_same_timeout_replace_one_vm(world: World) -> None:
    world.submit()
    world.deliver()
    for replica_id in (CHIEF, WORKER_1):
        world.send("vm-ready", replica_id)
    world.wait(STARTUP_TIMEOUT_S)
    world.sweep()
    world.sweep()
    world.deliver()
    assert world.replica(WORKER_0).vm_generation == 2
    world.check()
