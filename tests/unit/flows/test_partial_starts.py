"""Jobs that start before all of their VMs exist (`trainmaster.gang: false`), through the flows.

The primary and the parameter servers are required: the job runs as soon as they do. Workers are
optional, and are added while the job runs. Requests for their VMs are repeated after a backoff.

An attempt is one execution of the whole job.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.timeouts import WASTED_MAX

A, B = "us-central1-a", "us-central1-b"
PRIMARY = ReplicaId(TaskType.CHIEF, 0)
SERVER = ReplicaId(TaskType.PS, 0)
LOST_PEER = {"type": "UnavailableError", "message": "Socket closed", "frame": "task.py:7"}
WORKERS = tuple(ReplicaId(TaskType.WORKER, index) for index in range(3))


def a_server_job(*, gang: bool = False) -> dict[str, object]:
    """Return a job of a chief, a parameter server and three workers."""
    spec: dict[str, Any] = a_spec(
        workerCount=3, parameterServerCount=1, parameterServerType="n1-standard-4"
    )
    return {**spec, "trainmaster": {"gang": gang, "zones": [A, B]}}


@pytest.fixture
def world() -> World:
    return World()


def start(world: World, capacity: int, **options: bool) -> None:
    """Submit the job where the first zone has this number of VMs, and the second has enough."""
    world.fleet.capacity = {A: capacity, B: 99}
    world.submit(a_server_job(**options))
    world.deliver()


def names(world: World) -> set[str]:
    """Return the replicas that have a VM."""
    return {str(vm.replica_id) for vm in world.vms}


def pass_backoff(world: World) -> None:
    """Wait longer than the longest pause between two requests for VMs."""
    world.wait(16 * 60)
    world.provision()
    world.deliver()


def test_job_runs_with_the_workers_that_have_a_vm(world: World) -> None:
    start(world, capacity=3)
    assert names(world) == {"chief-0", "ps-0", "worker-0"}
    for replica_id in (PRIMARY, SERVER):
        assert world.state == JobState.PREPARING
        world.send("vm-ready", replica_id)
    assert world.state == JobState.RUNNING
    assert {vm.zone for vm in world.vms} == {A}
    world.check()


def test_missing_workers_are_added_when_there_is_capacity(world: World) -> None:
    start(world, capacity=3)
    for replica_id in (PRIMARY, SERVER, WORKERS[0]):
        world.send("vm-ready", replica_id)
    world.fleet.capacity[A] = 4
    pass_backoff(world)
    assert names(world) == {"chief-0", "ps-0", "worker-0", "worker-1"}
    world.fleet.capacity[A] = 5
    pass_backoff(world)
    assert names(world) == {"chief-0", "ps-0", "worker-0", "worker-1", "worker-2"}
    world.send("vm-ready", WORKERS[2])
    assert world.replica(WORKERS[2]).state is ReplicaState.RUNNING
    assert world.job.attempt == 1
    world.check()


def test_missing_workers_are_not_requested_before_the_backoff_is_over(world: World) -> None:
    start(world, capacity=3)
    world.fleet.capacity[A] = 5
    world.provision()
    assert len(world.vms) == 3


def test_job_that_waits_for_workers_for_days_stays_in_its_zone_and_attempt(world: World) -> None:
    start(world, capacity=3)
    for replica_id in (PRIMARY, SERVER, WORKERS[0]):
        world.send("vm-ready", replica_id)
    for _ in range(200):
        pass_backoff(world)
    assert (world.state, world.job.attempt, world.job.zone) == (JobState.RUNNING, 1, A)
    assert names(world) == {"chief-0", "ps-0", "worker-0"}
    world.check()


def test_gang_with_the_same_capacity_moves_to_the_next_zone(world: World) -> None:
    start(world, capacity=3, gang=True)
    assert {vm.zone for vm in world.vms} == {B}
    assert len(world.vms) == 5


def test_job_without_a_vm_for_a_parameter_server_moves_to_the_next_zone(world: World) -> None:
    start(world, capacity=1)
    assert names(world) == {"chief-0", "ps-0", "worker-0", "worker-1", "worker-2"}
    assert {vm.zone for vm in world.vms} == {B}


def test_lost_required_vm_without_capacity_moves_the_running_job(world: World) -> None:
    start(world, capacity=5)
    world.report_all_ready()
    world.fleet.capacity[A] = 4
    world.send("maintenance", SERVER, cause="preemption")
    world.deliver()
    pass_backoff(world)
    pass_backoff(world)
    assert world.job.zone == B
    assert world.job.attempt == 2
    world.check()


def test_required_vm_is_awaited_for_its_own_time_and_not_for_that_of_a_missing_worker(
    world: World,
) -> None:
    start(world, capacity=3)
    for replica_id in (PRIMARY, SERVER, WORKERS[0]):
        world.send("vm-ready", replica_id)
    for _ in range(5):
        pass_backoff(world)
    world.wait(16 * 60)
    world.fleet.capacity[A] = 2
    world.send("maintenance", SERVER, cause="preemption")
    world.deliver()
    assert (world.job.zone, world.job.attempt) == (A, 1)


def test_job_succeeds_although_a_worker_never_had_a_vm(world: World) -> None:
    start(world, capacity=3)
    for replica_id in (PRIMARY, SERVER):
        world.send("vm-ready", replica_id)
    world.exit_program(PRIMARY, 0)
    world.deliver()
    assert world.state == JobState.SUCCEEDED
    assert world.vms == ()


def test_optional_replica_that_fails_for_good_is_given_up_and_the_job_goes_on(world: World) -> None:
    start(world, capacity=5)
    world.report_all_ready()
    world.exit_program(WORKERS[1], 137, out_of_memory=True)
    world.deliver()
    assert (world.state, world.replica(WORKERS[1]).state) == (
        JobState.RUNNING,
        ReplicaState.COMPLETED,
    )
    assert world.find_vm(WORKERS[1]) is None
    assert "The job continues without worker 1." in world.ledger[-1].decision.text
    world.exit_program(PRIMARY, 137, out_of_memory=True)
    assert world.state == JobState.FAILED


def test_worker_whose_vms_are_lost_early_neither_moves_nor_fails_the_job(world: World) -> None:
    start(world, capacity=5)
    for replica_id in (PRIMARY, SERVER, *WORKERS[:2]):
        world.send("vm-ready", replica_id)
    for _ in range(WASTED_MAX + 2):
        while "worker-2" not in names(world):
            pass_backoff(world)
        world.fleet.vanish(next(vm.name for vm in world.vms if vm.replica_id == WORKERS[2]))
        world.provision()
        world.deliver()
    assert world.replica(WORKERS[2]).wasted > WASTED_MAX
    assert (world.state, world.job.attempt, world.job.zone) == (JobState.RUNNING, 1, A)


def test_new_search_begins_when_a_worker_is_missing_later(world: World) -> None:
    start(world, capacity=3)
    world.wait(timedelta(hours=5).total_seconds())
    pass_backoff(world)
    assert world.job.placement.next_at is not None
    assert world.job.placement.next_at > world.now


def wait_for_workers_for_a_day(world: World) -> None:
    """Run without two of three workers until requests are a quarter of an hour apart."""
    start(world, capacity=3)
    for replica_id in (PRIMARY, SERVER, WORKERS[0]):
        world.send("vm-ready", replica_id)
    for _ in range(100):
        pass_backoff(world)
    assert world.job.placement.next_at is not None
    assert world.job.placement.next_at - world.now > timedelta(minutes=13)


def test_lost_required_vm_is_requested_at_once_although_workers_wait_for_the_backoff(
    world: World,
) -> None:
    wait_for_workers_for_a_day(world)
    world.send("maintenance", SERVER, cause="preemption")
    world.deliver()
    assert names(world) == {"chief-0", "ps-0", "worker-0"}
    assert world.replica(SERVER).state is ReplicaState.REPLACING
    world.send("vm-ready", SERVER)
    assert world.replica(SERVER).state is ReplicaState.RUNNING
    world.check()


def test_lost_required_vm_without_capacity_is_requested_again_within_a_minute(world: World) -> None:
    wait_for_workers_for_a_day(world)
    world.fleet.capacity[A] = 2
    world.send("maintenance", SERVER, cause="preemption")
    world.deliver()
    assert "ps-0" not in names(world)
    assert world.job.placement.next_at is not None
    assert world.job.placement.next_at - world.now <= timedelta(minutes=1)
    world.fleet.capacity[A] = 3
    world.wait(60)
    world.provision()
    assert "ps-0" in names(world)
    world.check()


def test_missing_worker_still_waits_for_its_backoff_after_a_required_vm_was_replaced(
    world: World,
) -> None:
    wait_for_workers_for_a_day(world)
    world.send("maintenance", SERVER, cause="preemption")
    world.deliver()
    world.fleet.capacity[A] = 5
    world.provision()
    assert names(world) == {"chief-0", "ps-0", "worker-0"}
