"""Compute's own word: its audit log of VMs that it took away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.decisions import Reason
from shared.core.model.replica import ReplicaState
from shared.core.model.replica_id import ReplicaId
from shared.core.model.vm_names import vm_name
from shared.errors import PermanentError
from shared.messaging import google_events, internal_requests, topics
from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World
from tests.unit.flows.sweeping import entry, must, sweep, told


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("preempted", Reason.PREEMPTION),
        ("hostError", Reason.HOST_ERROR),
        ("terminateOnHostMaintenance", Reason.MAINTENANCE),
        ("guestTerminate", Reason.GONE),
    ],
)
def test_a_system_event_replaces_the_vm_without_a_sweep_and_names_the_cause(
    running: World, method: str, reason: Reason
) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    told(world, entry(old, method))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert world.ledger[-1].decision.reason is reason
    world.deliver()
    assert must(world.vm(WORKER_0)).vm_generation == 2
    world.check()


def test_an_event_told_by_the_agent_and_by_compute_counts_once(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.tell("maintenance", WORKER_0, cause="preemption")
    for _ in range(2):
        told(world, entry(old, "preempted"))
    world.deliver()
    told(world, entry(old, "preempted"))
    world.deliver()
    assert (world.replica(WORKER_0).vm_generation, world.replica(WORKER_0).replaced) == (2, 1)
    world.check()


def test_a_vm_preempted_before_its_agents_first_word_is_replaced_as_what_it_is_found_to_be(world: World) -> None:
    world.submit()
    world.deliver()
    old = must(world.vm(WORKER_0))
    world.fleet.stop(old.name)
    told(world, entry(old, "preempted"))
    world.deliver()
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    world.check()


def test_a_late_entry_about_an_old_vm_does_no_harm(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.tell("maintenance", WORKER_0, cause="maintenance")
    world.deliver()
    world.tell("vm-ready", WORKER_0)
    before, vms = world.replicas, world.vms
    told(world, entry(old, "hostError"))
    world.deliver()
    assert (world.replicas, world.vms) == (before, vms)


def test_an_entry_about_a_vm_that_runs_again_only_looks(running: World) -> None:
    world = running
    before, vms = world.replicas, world.vms
    told(world, entry(must(world.vm(WORKER_0)), "automaticRestart"))
    (message,) = world.bus.drain()
    assert (message.topic, internal_requests.decode_provision(message.data)) == (topics.PROVISION, "digits_1")
    assert (world.replicas, world.vms) == (before, vms)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gke-pool-1-abcd", "preempted"),
        ("tm-digits-1-ffffff-worker-0", "preempted"),
        ("tm-digits-2-ffffff-worker-0", "hostError"),
        (vm_name("digits_1", ReplicaId.parse("worker-99")), "hostError"),
        (vm_name("digits_1", WORKER_0), "migrateOnHostMaintenance"),
        (vm_name("digits_1", WORKER_0), "somethingNew"),
    ],
)
def test_entries_about_what_is_not_ours_or_means_nothing_are_acknowledged(
    running: World, name: str, method: str
) -> None:
    before = len(running.ledger)
    told(running, entry(replace(must(running.vm(WORKER_0)), name=name), method))
    assert running.bus.drain() == []
    assert len(running.ledger) == before


def test_an_entry_about_an_ended_jobs_vm_changes_nothing(running: World) -> None:
    world = running
    vm = must(world.vm(WORKER_0))
    world.fail(CHIEF, 0)
    world.deliver()
    told(world, entry(vm, "preempted"))
    world.deliver()
    assert (world.state, world.vms) == ("SUCCEEDED", ())
    world.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"protoPayload": {}},
        {"timestamp": "yesterday"},
        {"protoPayload": {"methodName": "x", "resourceName": "disks/d"}},
    ],
)
def test_an_entry_that_is_none_is_kept_for_people(running: World, changes: dict[str, object]) -> None:
    with pytest.raises(PermanentError):
        google_events.decode_maintenance(entry(must(running.vm(WORKER_0)), "preempted", **changes))


def test_without_any_event_the_sweep_finds_the_vm_that_crashed(running: World) -> None:
    world = running
    old = must(world.vm(WORKER_0))
    world.fleet.stop(old.name)
    sweep(world)
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert must(world.vm(WORKER_0)).instance_id != old.instance_id
    world.tell("vm-ready", WORKER_0)
    assert [each.decision.reason for each in world.ledger].count(Reason.GONE) == 1
    world.check()
