"""Slices through Cloud TPU's queue: requests, states, errors, and clean-up.

The first part runs with the adapter in memory and with the emulator, the second with the emulator
only. A round is one common start of all replicas of a job; its number is part of a request, so that
the failure of an old request is not taken for one of the next round.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest

from tests.integration.tpu.slices import (
    ONE_HOST,
    OTHER_ZONE,
    ZONE,
    Slices,
    a_create,
    a_metadata,
    a_queued_job,
    a_tpu_job,
    parent,
)
from tests.integration.tpu.test_flows import Plane
from tests.support.jobs import START, change_plan
from tests.support.stack import eventually
from tests.support.world import run_in_sequence
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.purchase import (
    FlexStart,
    Purchase,
    Spot,
)
from trainmaster.core.model.vm import LossCause as Loss
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.reconcile.attention import needs_reconciliation
from trainmaster.core.timeouts import FUSE_SLACK_S
from trainmaster.flows.provisioning import orphans
from trainmaster.gcp.fleets import Fleets
from trainmaster.ports import Fleet, NotCreated, Pending
from trainmaster_local.memory.fleet import MemoryFleet


class World(Protocol):
    """A fleet, and what the test lets happen to its requests."""

    @property
    def fleet(self) -> Fleet: ...

    def fill(self, *zones: str) -> None: ...

    def admit(self, name: str) -> None: ...

    def expire(self, name: str) -> None: ...

    def preempt(self, name: str) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.tpu = MemoryFleet()
        self.fleet: Fleet = self.tpu

    def fill(self, *zones: str) -> None:
        """Nothing to do: requests in memory wait until `admit`."""

    def admit(self, name: str) -> None:
        self.tpu.admit(name)

    def expire(self, name: str) -> None:
        self.tpu.expire(name)

    def preempt(self, name: str) -> None:
        self.tpu.stop(name, Loss.PREEMPTION)


class EmulatorWorld:
    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        self.fleet: Fleet = slices.fleet()

    def fill(self, *zones: str) -> None:
        self.slices.compute.faults(stockout_zones=list(zones))

    def admit(self, name: str) -> None:
        self.fill()
        eventually(lambda: self.slices.queue_state(name) == "ACTIVE", 30)

    def expire(self, name: str) -> None:
        """Wait for the time limit of `a_short_lived_job`."""
        eventually(lambda: self.slices.queue_state(name) == "FAILED", 30)

    def preempt(self, name: str) -> None:
        self.slices.fault(name, "preempt", notice_s=0.1)
        eventually(lambda: self.slices.queue_state(name) == "SUSPENDED", 30)


@pytest.fixture
def tpus(slices: Slices) -> EmulatorWorld:
    return EmulatorWorld(slices)


@pytest.fixture(params=["memory", "emulator"])
def world(request: pytest.FixtureRequest) -> World:
    world: World = MemoryWorld() if request.param == "memory" else request.getfixturevalue("tpus")
    world.fill(ZONE, OTHER_ZONE)
    return world


def a_short_lived_job() -> Job:
    """Return a job whose requests fail after a few seconds."""
    return replace(a_queued_job(max_wait_s=4), created_at=datetime.now(UTC))


def listed(fleet: Fleet, job: Job) -> Vm:
    (vm,) = fleet.list_vms(job.job_id, job.plan.tpu_zones)
    return vm


def enqueue(fleet: Fleet, job: Job, **changes: Any) -> Vm:
    assert fleet.create(job, a_create(job, **changes), a_metadata()) == Pending()
    return listed(fleet, job)


# With the adapter in memory and with the emulator


def test_waiting_request_is_listed_like_its_vm(world: World) -> None:
    job = a_queued_job()
    vm = enqueue(world.fleet, job)
    create = a_create(job)
    assert (vm.name, vm.zone, vm.replica_id, vm.vm_generation) == (
        create.names[0],
        ZONE,
        create.replica_ids[0],
        1,
    )
    assert (vm.status, vm.directive, vm.is_tpu) == (VmStatus.QUEUED, create.directive, True)
    assert vm.created_at is not None
    assert vm in [labelled.vm for labelled in world.fleet.list_all()]


def test_repeated_create_makes_no_second_request(world: World) -> None:
    job = a_queued_job()
    vm = enqueue(world.fleet, job)
    assert enqueue(world.fleet, job) == vm


def test_admitted_request_becomes_an_ordinary_slice(world: World) -> None:
    job = a_queued_job()
    waiting = enqueue(world.fleet, job)
    world.admit(waiting.name)
    vm = listed(world.fleet, job)
    assert (vm.name, vm.status, vm.directive) == (waiting.name, VmStatus.RUNNING, waiting.directive)
    assert vm.instance_id != waiting.instance_id
    assert world.fleet.delete(vm)
    assert world.fleet.list_vms(job.job_id, job.plan.tpu_zones) == ()


def test_waiting_request_can_be_deleted_repeatedly(world: World) -> None:
    job = a_queued_job()
    vm = enqueue(world.fleet, job)
    assert world.fleet.delete(vm)
    assert world.fleet.delete(vm), "it may be repeated"
    assert world.fleet.list_all() == ()


def test_delete_leaves_a_newer_request_of_the_same_name_alone(world: World) -> None:
    job = a_queued_job()
    old = enqueue(world.fleet, job)
    assert world.fleet.delete(old)
    young = enqueue(world.fleet, job, vm_generation=2)
    assert world.fleet.delete(old)
    assert listed(world.fleet, job) == young


def test_failed_request_is_reported_in_its_round_and_replaced_in_the_next(world: World) -> None:
    job = a_short_lived_job()
    vm = enqueue(world.fleet, job)
    world.expire(vm.name)
    assert listed(world.fleet, job).status is VmStatus.REFUSED
    for _ in range(2):
        outcome = world.fleet.create(job, a_create(job), a_metadata())
        assert isinstance(outcome, NotCreated)
        assert (outcome.kind, outcome.code) == (CapacityErrorKind.STOCKOUT, "DEADLINE_EXCEEDED")
    extended = replace(job, plan=change_plan(job.plan, max_wait_s=3600))
    assert world.fleet.create(extended, a_create(job, round=1), a_metadata()) == Pending()
    again = enqueue(world.fleet, extended, round=1)
    assert again.status is VmStatus.QUEUED
    assert again.instance_id != vm.instance_id


def test_preempted_slice_is_stopped_and_deleted_with_its_request(world: World) -> None:
    job = a_queued_job(Spot())
    name = enqueue(world.fleet, job).name
    world.admit(name)
    world.preempt(name)
    vm = listed(world.fleet, job)
    assert (vm.status, vm.loss) == (VmStatus.STOPPED, Loss.PREEMPTION)
    assert world.fleet.delete(vm)
    assert world.fleet.list_all() == ()


# With the emulator only


def test_delete_of_a_request_that_was_admitted_meanwhile_deletes_its_slice(
    tpus: EmulatorWorld,
) -> None:
    job = a_queued_job()
    tpus.fill(ZONE)
    waiting = enqueue(tpus.fleet, job)
    tpus.admit(waiting.name)
    assert tpus.fleet.delete(waiting)
    assert tpus.fleet.list_all() == ()


def test_slice_deleted_by_a_user_is_stopped_and_its_request_can_be_deleted(
    tpus: EmulatorWorld,
) -> None:
    job = a_queued_job()
    name = enqueue(tpus.fleet, job).name
    tpus.admit(name)
    tpus.slices.done(tpus.slices.client.delete_node(name=f"{parent()}/nodes/{name}"))
    eventually(lambda: tpus.slices.queue_state(name) == "SUSPENDED", 30)
    vm = listed(tpus.fleet, job)
    assert (vm.status, vm.loss) == (VmStatus.STOPPED, Loss.GONE)
    assert tpus.fleet.delete(vm)
    assert tpus.slices.all_queued() == []


def test_flex_start_has_the_run_limit_of_the_job(tpus: EmulatorWorld) -> None:
    job = a_tpu_job(ONE_HOST, purchase=Purchase(FlexStart(), is_queued=True), max_running_s=7200)
    job = replace(job, created_at=datetime.now(UTC), started_at=None)
    name = enqueue(tpus.fleet, job).name
    shown = tpus.slices.compute.call(f"/v2alpha1/{parent()}/queuedResources/{name}")
    assert (shown["provisioningModel"], shown["runDuration"]) == (
        "FLEX_START",
        {"maxRunDuration": f"{7200 + FUSE_SLACK_S}s"},
    )
    tpus.admit(name)
    assert listed(tpus.fleet, job).status is VmStatus.RUNNING


def test_invalid_request_is_denied_and_foreign_requests_stay(tpus: EmulatorWorld) -> None:
    invalid = a_queued_job()
    group = replace(invalid.plan.groups[0], tpu=replace(ONE_HOST, runtime="v1-never"))
    outcome = tpus.fleet.create(invalid, a_create(invalid, group=group), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.BLOCKED, (
        "Google may offer the version again, or under another name"
    )
    job = a_queued_job()
    name = a_create(job).names[0]
    tpus.slices.enqueue(name)
    outcome = tpus.fleet.create(job, a_create(job), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.code == "ALREADY_EXISTS"
    assert tpus.fleet.list_all() == ()


def test_zone_without_tpus_is_a_stockout(tpus: EmulatorWorld) -> None:
    job = a_queued_job(zones=("us-nowhere1-z",))
    outcome = tpus.fleet.create(job, a_create(job, zone="us-nowhere1-z"), a_metadata())
    assert isinstance(outcome, NotCreated)
    assert outcome.kind is CapacityErrorKind.STOCKOUT


def test_no_request_is_made_after_the_jobs_time_limit(tpus: EmulatorWorld) -> None:
    job = replace(a_queued_job(max_wait_s=10), created_at=START)
    assert tpus.fleet.create(job, a_create(job), a_metadata()) == Pending()
    assert tpus.slices.all_queued() == []


# Whole flows


def a_plane(tpus: EmulatorWorld) -> Plane:
    tpus.fill(ZONE, OTHER_ZONE)
    return Plane(Fleets(MemoryFleet(), tpus.fleet))


def test_job_waits_in_the_queue_with_one_ledger_entry(tpus: EmulatorWorld) -> None:
    plane, job = a_plane(tpus), a_queued_job()
    plane.submit(job)
    for _ in range(3):
        assert plane.provision(job), (
            "a message must not be redelivered for days: it would become a dead letter"
        )
    loaded = plane.store.load(job.job_id)
    assert loaded is not None
    assert needs_reconciliation(loaded.state.job, datetime.now(UTC)), "the sweep looks at it"
    assert not plane.store.pending_keys(job.job_id)
    (entry,) = [
        entry for entry in plane.store.ledger(job.job_id) if entry.decision.reason is Reason.QUEUED
    ]
    assert entry.decision.text == f"1 x v5litepod-4 (chief) waits in Cloud TPU's queue in {ZONE}."
    tpus.admit(a_create(job).names[0])
    assert plane.provision(job)
    assert not plane.store.pending_keys(job.job_id)
    assert [vm.status for vm in plane.vms(job)] == [VmStatus.RUNNING]


def test_cancelled_job_leaves_no_request(tpus: EmulatorWorld) -> None:
    plane, job = a_plane(tpus), a_queued_job()
    plane.submit(job)
    assert plane.provision(job)
    plane.cancel(job)
    eventually(lambda: plane.provision(job), 30)
    assert tpus.slices.all_queued() == []


def test_preempted_job_is_queued_again_with_the_same_name(tpus: EmulatorWorld) -> None:
    plane, job = a_plane(tpus), a_queued_job()
    plane.submit(job)
    assert plane.provision(job)
    name = a_create(job).names[0]
    tpus.admit(name)
    plane.report_ready(job)
    tpus.fill(ZONE, OTHER_ZONE)
    tpus.preempt(name)
    eventually(
        lambda: plane.provision(job) and tpus.slices.queue_state(name) == "WAITING_FOR_RESOURCES",
        60,
    )
    (vm,) = plane.vms(job)
    assert (vm.status, vm.vm_generation) == (VmStatus.QUEUED, 2)
    assert Reason.PREEMPTION in plane.reasons(job)
    tpus.admit(name)
    assert plane.provision(job)
    assert [(vm.status, vm.vm_generation) for vm in plane.vms(job)] == [(VmStatus.RUNNING, 2)]


def test_orphaned_request_is_reported_and_then_deleted(tpus: EmulatorWorld) -> None:
    plane, lost = a_plane(tpus), a_queued_job()
    enqueue(plane.fleet, lost)
    times = orphans.OrphanTimes(grace_s=0.0, age_min_s=0.0)
    orphans.handle(plane.fleet.list_all(), (), plane.fleet, plane.deps, times, run_in_sequence)
    assert len(plane.store.orphans()) == 1
    orphans.handle(plane.fleet.list_all(), (), plane.fleet, plane.deps, times, run_in_sequence)
    eventually(lambda: tpus.slices.all_queued() == [], 30)
