"""The Fleet that sends VMs to Compute Engine and slices to Cloud TPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from tests.integration.tpu.slices import FOUR_HOSTS, RUN, a_create, a_metadata, a_tpu_job
from tests.support.jobs import a_job
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.vm import LabelledVm, Vm
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.fleets import TPU_DISABLED, Fleets
from trainmaster.ports import Created, Reached, reached
from trainmaster_local.memory.fleet import MemoryFleet


@dataclass
class CountingFleet(MemoryFleet):
    """Records its list calls."""

    calls: list[str] = field(default_factory=list)

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        self.calls.append("list_vms")
        return super().list_vms(job_id, tpu_zones, zones)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        self.calls.append("list_all")
        return super().list_all(zones)


def both() -> tuple[Fleets, CountingFleet, CountingFleet]:
    compute, tpu = CountingFleet(), CountingFleet()
    return Fleets(compute, tpu), compute, tpu


def a_mixed_job() -> Job:
    """A job with a chief on a VM and a worker on a slice."""
    job = a_tpu_job()
    groups = (
        TaskGroup(TaskType.CHIEF, 1, "n1-standard-4"),
        TaskGroup(TaskType.WORKER, 1, machine_type="", tpu=FOUR_HOSTS),
    )
    return replace(job, plan=replace(job.plan, groups=groups))


def test_each_task_group_is_created_by_the_fleet_of_its_machines() -> None:
    fleet, compute, tpu = both()
    job = a_mixed_job()
    for group in job.plan.groups:
        replica_id = ReplicaId(group.task_type, 0)
        create = a_create(
            job,
            group=group,
            replica_ids=(replica_id,),
            names=(f"tm-x-1234567890abcdef-{replica_id}",),
        )
        assert fleet.create(job, create, a_metadata()) == Created()
    vms = fleet.list_vms(job.job_id, job.plan.tpu_zones)
    assert [(vm.replica_id.task_type, vm.is_tpu) for vm in vms] == [
        (TaskType.CHIEF, False),
        (TaskType.WORKER, True),
    ]
    assert (len(compute.list_all()), len(tpu.list_all())) == (1, 1)
    assert {labelled.vm for labelled in fleet.list_all()} == set(vms)
    later = replace(RUN, incarnation=2)
    for vm in vms:
        assert fleet.write_directive(vm, later)
        assert fleet.serial_output(vm, 0) == ("", 0)
    assert [vm.directive for vm in fleet.list_vms(job.job_id, job.plan.tpu_zones)] == [later, later]
    for vm in vms:
        assert fleet.delete(vm)
    assert fleet.list_all() == ()
    assert fleet.release(job)


def test_job_without_tpus_makes_no_call_to_cloud_tpu() -> None:
    fleet, compute, tpu = both()
    job = a_job()
    fleet.list_vms(job.job_id, job.plan.tpu_zones)
    assert (compute.calls, tpu.calls) == (["list_vms"], [])


def test_job_with_slices_is_refused_where_cloud_tpu_is_disabled() -> None:
    fleet = Fleets(MemoryFleet(), tpu=None)
    job = a_tpu_job()
    assert fleet.create(job, a_create(job), a_metadata()) == TPU_DISABLED
    assert "TRAINMASTER_TPU=true" in TPU_DISABLED.message
    assert not fleet.list_vms(job.job_id, job.plan.tpu_zones)
    assert not fleet.list_all()


def test_metric_is_read_by_the_fleet_of_the_vm() -> None:
    fleet, compute, tpu = both()
    slices, vms = a_tpu_job(), a_job()
    for job in (slices, vms):
        assert fleet.create(job, a_create(job), a_metadata()) == Created()
    (on_tpu,), (on_compute, *_) = (
        fleet.list_vms(slices.job_id, slices.plan.tpu_zones),
        fleet.list_vms(vms.job_id),
    )
    tpu.report_metric(on_tpu.name, "of the slice")
    compute.report_metric(on_compute.name, "of the VM")
    assert (fleet.reported_metric(on_tpu), fleet.reported_metric(on_compute)) == (
        "of the slice",
        "of the VM",
    )


@pytest.mark.parametrize("error", [PermanentError, TemporaryError])
def test_failure_of_cloud_tpu_does_not_hide_the_vms_of_compute_engine(
    error: type[Exception],
) -> None:
    class FailingFleet(MemoryFleet):
        def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
            raise error("Cloud TPU does not answer")

    compute, job = MemoryFleet(), a_job()
    group = job.plan.groups[0]
    compute.create(
        job, a_create(job, group=group, replica_ids=job.plan.replica_ids[:1]), a_metadata()
    )
    assert Fleets(compute, FailingFleet()).list_all() == compute.list_all() != ()


def test_unreachable_zones_of_both_services_are_reported_together() -> None:
    fleet, compute, tpu = both()
    compute.unreachable_zones, tpu.unreachable_zones = {"us-central1-a"}, {"us-central1-b"}
    zones = ("us-central1-a", "us-central1-b")
    assert reached(lambda: fleet.list_vms("digits_1", zones, zones)) == Reached(
        (), unreachable=zones, refusal=""
    )
    assert reached(fleet.list_all) == Reached((), unreachable=zones, refusal="")
