"""Cost of a sweep, and the losses that it must still find.

The sweep runs each minute. For each job, it compares two numbers: replicas that should have a VM,
and VMs. It requests a reconciliation, which reads the job and lists its VMs, only if they differ,
if the job waits for something, and every ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from bench.costs import SWEEP_READS
from bench.counting import Counts, counting_fleet, counting_store
from tests.support.jobs import WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.reconcile.attention import FULL_RECONCILIATION_MINUTES, needs_reconciliation
from trainmaster.flows import provision, sweep
from trainmaster.flows.provisioning import vm_check
from trainmaster.messaging import internal_requests, topics

SWEEP_S = 60


def running_job(size: int) -> World:
    world = World()
    world.submit(a_spec(workerCount=size - 1))
    world.deliver()
    world.report_all_ready()
    world.deliver()
    skip_full_look(world)
    return world


def skip_full_look(world: World) -> None:
    """Move the clock to a minute in which the job needs no look for its own sake."""
    while needs_reconciliation(world.job, world.now):
        world.wait(SWEEP_S)


def sweep_counted(world: World) -> Counts:
    """Sweep, handle all requests that follow, and return what that cost."""
    counts = Counts()
    deps = replace(world.deps, store=counting_store(world.store, counts))
    fleet_deps = replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts))
    sweep.handle(deps)
    while message := world.bus.take():
        provision.handle(internal_requests.decode_provision(message.data), fleet_deps, deps)
    return counts


@pytest.mark.parametrize("size", [3, 60])
def test_idle_job_costs_a_handful_of_reads_whatever_its_size(size: int) -> None:
    counts = sweep_counted(running_job(size))
    assert counts.reads == SWEEP_READS["each sweep"] + SWEEP_READS["a running job"]
    assert (counts.calls["list_all"], counts.calls["list_vms"]) == (1, 0)


def test_idle_job_is_reconciled_once_in_ten_minutes() -> None:
    world = running_job(3)
    listings = []
    for _ in range(2 * FULL_RECONCILIATION_MINUTES):
        listings.append(sweep_counted(world).calls["list_vms"])
        world.wait(SWEEP_S)
    assert sum(listings) == 2


@pytest.mark.parametrize("loss", ["stop", "vanish"])
def test_vm_lost_without_an_event_is_found_by_the_next_sweep(loss: str) -> None:
    world = running_job(3)
    vm = world.vm(WORKER_0)
    getattr(world.fleet, loss)(vm.name)
    sweep_counted(world)
    assert world.replica(WORKER_0).vm_generation == 2
    new = world.vm(WORKER_0)
    assert new.instance_id != vm.instance_id


def test_vm_of_a_completed_replica_that_exists_again_is_deleted() -> None:
    world = running_job(3)
    world.exit_program(WORKER_1, 0)
    old = world.vm(WORKER_1)
    world.deliver()
    assert world.find_vm(WORKER_1) is None
    skip_full_look(world)
    assert sweep_counted(world).calls["list_vms"] == 0, "two replicas need a VM, and two VMs exist"
    world.fleet._vms[(old.name, old.zone)] = ("digits_1", old)
    skip_full_look(world)
    sweep_counted(world)
    assert world.find_vm(WORKER_1) is None


def test_job_with_a_held_round_is_reconciled_every_minute() -> None:
    """Its agent must report within a time that no event announces."""
    world = running_job(3)
    world.silent.add(WORKER_0)
    world.kill(WORKER_0)
    world.deliver()
    assert world.job.round.is_held
    for _ in range(2):
        assert sweep_counted(world).calls["list_vms"] == 1
        world.wait(SWEEP_S)


def test_job_that_cannot_be_judged_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline fails; the requests about all jobs are published before."""
    world = running_job(3)
    world.now += timedelta(days=30)

    def fail(*_: object) -> None:
        raise ValueError("unreadable")

    monkeypatch.setattr(sweep, "record", fail)
    with pytest.raises(Exception, match="deadlines of 1 jobs"):
        world.sweep()
    assert world.bus.size >= 1


def test_running_jobs_are_compared_with_their_vms_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two counts of each job one after another would take longer than a minute with thousands of
    running jobs.
    """
    world = running_job(3)
    for number in (2, 3):
        world.job_id = f"digits_{number}"
        world.submit()
        world.deliver()
        world.report_all_ready()
    monkeypatch.setattr(vm_check, "needs_reconciliation", lambda job, now: False)
    all_jobs = Barrier(3, timeout=10)
    count = world.store.count_replicas

    def count_together(job_id: str, attempt: int, states: Sequence[ReplicaState]) -> int:
        all_jobs.wait()
        return count(job_id, attempt, states)

    monkeypatch.setattr(world.store, "count_replicas", count_together)
    world.fleet.vanish(world.vms[0].name)
    vm_check.handle(replace(world.fleet_deps, run_all=run_in_threads), world.deps)
    assert [message.topic for message in world.bus.drain()] == [topics.PROVISION]


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(tasks) or 1) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()
