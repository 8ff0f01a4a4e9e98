"""A running replica whose agent is gone or hangs is found by a reconciliation that the sweep
requested.

An agent writes a heartbeat each minute. The sweep, a scheduled pass over all jobs, requests that
their VMs are compared with what they should be. Agents of a VM image without heartbeats are left
alone. A *hold* orders all members to end their programs, and to report that they are ready; the VMs
of those that do not answer are replaced, each by one of the next *generation*.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.counting import Counts, counting_fleet
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.timeouts import AGENT_TIMEOUT, ALL_AGENTS_TIMEOUT, HELD_AGENT_TIMEOUT
from trainmaster.errors import TemporaryError
from trainmaster.flows import provision
from trainmaster.messaging.internal_requests import ProvisionRequest

REPLICAS = (CHIEF, WORKER_0, WORKER_1)
TIMEOUT_S = AGENT_TIMEOUT.total_seconds()


@pytest.fixture
def world() -> World:
    """Return a world whose job runs."""
    world = World()
    world.start_running()
    world.deliver()
    world.wait(1)
    return world


def beat(world: World, *replica_ids: ReplicaId) -> None:
    for replica_id in replica_ids:
        world.fleet.beat(vm_name(world.job_id, replica_id))


def reconcile(world: World) -> None:
    """Provision as the sweep requests it."""
    world.provision()
    world.deliver()


def generations(world: World) -> list[int]:
    """Return the VM generations of chief, worker 0 and worker 1; 1: the first VM."""
    return [world.replica(replica_id).vm_generation for replica_id in REPLICAS]


def test_silent_agent_is_found_at_the_timeout_and_its_vm_replaced(world: World) -> None:
    beat(world, *REPLICAS)
    world.wait(TIMEOUT_S - 1)
    beat(world, CHIEF, WORKER_0)
    reconcile(world)
    assert generations(world) == [1, 1, 1]
    world.wait(1)
    reconcile(world)
    assert generations(world) == [1, 1, 2]
    assert {vm.vm_generation for vm in world.vms if vm.replica_id == WORKER_1} == {2}
    world.check()


def test_second_reconciliation_changes_nothing_more(world: World) -> None:
    beat(world, *REPLICAS)
    world.wait(TIMEOUT_S)
    beat(world, CHIEF, WORKER_0)
    reconcile(world)
    reconcile(world)
    assert generations(world) == [1, 1, 2]


def test_agents_without_heartbeats_are_left_alone(world: World) -> None:
    world.wait(10 * TIMEOUT_S)
    reconcile(world)
    assert generations(world) == [1, 1, 1]


def test_whole_gang_without_recent_heartbeats_is_replaced_after_an_hour(world: World) -> None:
    beat(world, *REPLICAS)
    world.wait(ALL_AGENTS_TIMEOUT.total_seconds() - 1)
    reconcile(world)
    assert generations(world) == [1, 1, 1]
    world.silent |= set(REPLICAS)
    world.wait(1)
    reconcile(world)
    assert generations(world) == [2, 1, 1], "the first loss holds the round"
    world.wait(HELD_AGENT_TIMEOUT.total_seconds())
    reconcile(world)
    assert generations(world) == [2, 2, 2]


def test_agent_that_does_not_answer_a_hold_is_replaced_after_five_minutes(world: World) -> None:
    beat(world, *REPLICAS)
    world.silent.add(WORKER_1)
    world.exit_program(CHIEF, 1)
    world.deliver()
    world.wait(HELD_AGENT_TIMEOUT.total_seconds())
    beat(world, CHIEF, WORKER_0)
    reconcile(world)
    assert generations(world) == [1, 1, 2]


def test_rate_limit_makes_heartbeats_unknown_and_breaks_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(vm: object) -> None:
        raise TemporaryError("rateLimitExceeded")

    beat(world, *REPLICAS)
    world.wait(TIMEOUT_S)
    monkeypatch.setattr(world.fleet, "last_heartbeat", refuse)
    reconcile(world)
    assert generations(world) == [1, 1, 1]


def heartbeats_read(world: World, request: ProvisionRequest) -> int:
    """Return how many heartbeats the handling of this request reads."""
    counts = Counts()
    fleet_deps = replace(world.fleet_deps, fleet=counting_fleet(world.fleet, counts))
    provision.handle(request, fleet_deps, world.deps)
    return counts.calls["last_heartbeat"]


def test_reconciliation_of_the_sweep_reads_each_heartbeat_once(world: World) -> None:
    world.wait(TIMEOUT_S)
    assert heartbeats_read(world, ProvisionRequest(world.job_id)) == len(REPLICAS)


def test_requests_of_events_read_no_heartbeats(world: World) -> None:
    """The exits of a gang request provisioning many times within seconds."""
    world.wait(TIMEOUT_S)
    world.kill(WORKER_0)
    (entry_key,) = world.store.pending_keys(world.job_id)
    assert heartbeats_read(world, ProvisionRequest(world.job_id, entry_key)) == 0
