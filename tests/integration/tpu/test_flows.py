"""The real flows with slices of the emulator: stockouts, late errors, and orphans."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.compute.emulator import PROJECT
from tests.integration.tpu.slices import (
    ONE_HOST,
    OTHER_ZONE,
    ZONE,
    Slices,
    a_create,
    a_metadata,
    a_tpu_job,
)
from tests.support.stack import eventually
from tests.support.world import FixedAddresses, run_in_sequence
from trainmaster.core.decisions import Reason
from trainmaster.core.events import CancelRequested, IncarnationRef, JobSubmitted, VmReady, VmRef
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.errors import TemporaryError
from trainmaster.flows import provision, vm_ready
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning import orphans
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.fleets import Fleets
from trainmaster.messaging.internal_requests import ProvisionRequest
from trainmaster.ports import Fleet
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore


class Plane:
    """A control plane in this process that uses the given fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.store = MemoryStore()
        self.deps = CreationDeps(
            self.store,
            MemoryBus(),
            clock=lambda: datetime.now(UTC),
            sleep=lambda _: time.sleep(0.05),
        )
        self.fleet = fleet
        agent = {"startup-script": "sleep 600"}
        self.fleet_deps = FleetDeps(self.fleet, FixedAddresses(), PROJECT, agent, run_in_sequence)

    def submit(self, job: Job) -> None:
        record(
            JobSubmitted(replace(job, state=JobState.QUEUED, started_at=None), datetime.now(UTC)),
            self.deps,
        )

    def provision(self, job: Job) -> bool:
        """Return whether nothing is left to do, or the job waits in Cloud TPU's queue."""
        try:
            provision.handle(ProvisionRequest(job.job_id), self.fleet_deps, self.deps)
        except TemporaryError:
            return False
        is_queued = any(
            vm.status is VmStatus.QUEUED
            for vm in self.fleet.list_vms(job.job_id, job.plan.tpu_zones)
        )
        return is_queued or not self.store.pending_keys(job.job_id)

    def cancel(self, job: Job) -> None:
        record(CancelRequested(job.job_id, "me", datetime.now(UTC)), self.deps)

    def report_ready(self, job: Job) -> None:
        """Send the vm-ready event of every replica."""
        for vm in self.vms(job):
            subject = IncarnationRef(
                job.job_id,
                attempt=1,
                replica_id=vm.replica_id,
                incarnation=1,
                vm_generation=vm.vm_generation,
                vm=VmRef(vm.name, vm.zone, vm.instance_id),
            )
            vm_ready.handle(VmReady(subject, datetime.now(UTC)), self.deps)

    def vms(self, job: Job) -> tuple[Vm, ...]:
        return self.fleet.list_vms(job.job_id, job.plan.tpu_zones)

    def reasons(self, job: Job) -> list[Reason]:
        return [entry.decision.reason for entry in self.store.ledger(job.job_id)]

    def job(self, job: Job) -> Job:
        loaded = self.store.load(job.job_id)
        assert loaded is not None
        return loaded.state.job


@pytest.fixture
def job() -> Job:
    return a_tpu_job(ONE_HOST, count=2)


def test_slices_are_created_in_the_zone_with_capacity(slices: Slices, job: Job) -> None:
    plane = Plane(Fleets(MemoryFleet(), slices.fleet()))
    slices.compute.faults(stockout_zones=[ZONE])
    plane.submit(job)
    eventually(lambda: plane.provision(job), 60)
    assert {(vm.zone, vm.status, vm.is_tpu) for vm in plane.vms(job)} == {
        (OTHER_ZONE, VmStatus.RUNNING, True)
    }
    assert len(plane.vms(job)) == 2
    assert Reason.STOCKOUT in plane.reasons(job)


def test_stockout_reported_after_the_function_ended_moves_the_job(slices: Slices, job: Job) -> None:
    plane = Plane(Fleets(MemoryFleet(), slices.fleet(wait_s=0.0)))
    slices.compute.faults(stockout_zones=[ZONE], slow_s=1.0)
    plane.submit(job)
    eventually(lambda: plane.provision(job), 90)
    assert plane.job(job).zone == OTHER_ZONE
    assert {vm.zone for vm in plane.vms(job)} == {OTHER_ZONE}
    assert plane.reasons(job).count(Reason.STOCKOUT) == 1


def test_orphaned_slice_is_reported_and_then_deleted(slices: Slices) -> None:
    plane = Plane(Fleets(MemoryFleet(), slices.fleet()))
    lost = a_tpu_job(ONE_HOST)
    plane.fleet.create(lost, a_create(lost), a_metadata())
    kept = a_tpu_job(ONE_HOST)
    plane.submit(kept)
    eventually(lambda: plane.provision(kept), 60)
    times = orphans.OrphanTimes(grace_s=0.0, age_min_s=0.0)

    def sweep() -> None:
        orphans.handle(
            plane.fleet.list_all(), (kept.job_id,), plane.fleet, plane.deps, times, run_in_sequence
        )

    sweep()
    (reported,) = plane.store.orphans()
    assert (reported.name, reported.zone) == (a_create(lost).names[0], ZONE)
    assert len(plane.vms(lost)) == 1, "the first sweep only reports"
    sweep()
    eventually(lambda: not plane.vms(lost), 30)
    sweep()
    assert plane.store.orphans() == ()
    assert len(plane.vms(kept)) == 1
    assert reported.first_seen_at > datetime.now(UTC) - timedelta(minutes=5)
