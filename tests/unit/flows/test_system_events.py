"""Entries of Compute's system-event audit log, through the flow of `maintenance`.

The ledger has the events of a job and the decisions about them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0
from tests.support.world import World
from tests.unit.flows.sweep_helpers import audit_log_entry, deliver_entry, sweep
from trainmaster.core.decisions import Reason
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import PermanentError
from trainmaster.messaging import google_events, internal_requests, topics


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("preempted", Reason.PREEMPTION),
        ("hostError", Reason.HOST_ERROR),
        ("terminateOnHostMaintenance", Reason.MAINTENANCE),
        ("guestTerminate", Reason.GONE),
    ],
)
def test_system_event_replaces_the_vm_without_a_sweep_and_names_the_cause(
    running: World, method: str, reason: Reason
) -> None:
    world = running
    old = world.vm(WORKER_0)
    deliver_entry(world, audit_log_entry(old, method))
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert world.ledger[-1].decision.reason is reason
    world.deliver()
    assert world.vm(WORKER_0).vm_generation == 2
    world.check()


def test_loss_reported_by_agent_and_audit_log_counts_once(running: World) -> None:
    world = running
    old = world.vm(WORKER_0)
    world.send("maintenance", WORKER_0, cause="preemption")
    for _ in range(2):
        deliver_entry(world, audit_log_entry(old, "preempted"))
    world.deliver()
    deliver_entry(world, audit_log_entry(old, "preempted"))
    world.deliver()
    assert (world.replica(WORKER_0).vm_generation, world.replica(WORKER_0).replaced) == (2, 1)
    world.check()


def test_vm_preempted_before_its_agents_first_report_is_replaced(world: World) -> None:
    world.submit()
    world.deliver()
    old = world.vm(WORKER_0)
    world.silent.add(WORKER_0)
    world.fleet.stop(old.name)
    deliver_entry(world, audit_log_entry(old, "preempted"))
    world.deliver()
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    assert world.vm(WORKER_0).instance_id != old.instance_id
    world.check()


def test_late_entry_about_a_replaced_vm_changes_nothing(running: World) -> None:
    world = running
    old = world.vm(WORKER_0)
    world.send("maintenance", WORKER_0, cause="maintenance")
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.deliver()
    before, vms = world.replicas, world.vms
    deliver_entry(world, audit_log_entry(old, "hostError"))
    world.deliver()
    assert (world.replicas, world.vms) == (before, vms)


def test_entry_about_a_restarted_vm_only_requests_provisioning(running: World) -> None:
    world = running
    before, vms = world.replicas, world.vms
    deliver_entry(world, audit_log_entry(world.vm(WORKER_0), "automaticRestart"))
    (message,) = world.bus.drain()
    assert (message.topic, internal_requests.decode_provision(message.data)) == (
        topics.PROVISION,
        internal_requests.ProvisionRequest("digits_1"),
    )
    assert (world.replicas, world.vms) == (before, vms)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gke-pool-1-abcd", "preempted"),
        ("tm-digits-1-ffffffffffffffff-worker-0", "preempted"),
        ("tm-digits-2-ffffffffffffffff-worker-0", "hostError"),
        (vm_name("digits_1", ReplicaId.parse("worker-99")), "hostError"),
        (vm_name("digits_1", WORKER_0), "migrateOnHostMaintenance"),
        (vm_name("digits_1", WORKER_0), "somethingNew"),
    ],
)
def test_entry_about_another_vm_or_irrelevant_method_is_ignored(
    running: World, name: str, method: str
) -> None:
    before = len(running.ledger)
    deliver_entry(running, audit_log_entry(replace(running.vm(WORKER_0), name=name), method))
    assert running.bus.drain() == []
    assert len(running.ledger) == before


def test_entry_about_a_vm_of_an_ended_job_changes_nothing(running: World) -> None:
    world = running
    vm = world.vm(WORKER_0)
    world.exit_program(CHIEF, 0)
    world.deliver()
    deliver_entry(world, audit_log_entry(vm, "preempted"))
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
def test_malformed_entry_is_a_permanent_error(running: World, changes: dict[str, object]) -> None:
    with pytest.raises(PermanentError):
        google_events.decode_maintenance(
            audit_log_entry(running.vm(WORKER_0), "preempted", **changes)
        )


def test_sweep_replaces_a_stopped_vm_that_no_event_reported(running: World) -> None:
    world = running
    old = world.vm(WORKER_0)
    world.fleet.stop(old.name)
    sweep(world)
    assert world.replica(WORKER_0).state is ReplicaState.REPLACING
    replacement = world.vm(WORKER_0)
    assert replacement.instance_id != old.instance_id
    assert (replacement.vm_generation, replacement.status) == (2, VmStatus.RUNNING)
    world.send("vm-ready", WORKER_0)
    assert [entry.decision.reason for entry in world.ledger].count(Reason.GONE) == 1
    world.check()
