"""What tests of the sweep do: let it come round, leave VMs without an owner behind, speak as Compute's audit log."""

from __future__ import annotations

import json

from shared.core.model.job import Job, JobState
from shared.core.model.replica import Replica
from shared.core.model.vm import Vm
from shared.core.reconcile.desired import desired_vms
from shared.core.reconcile.plan import vm_steps
from shared.core.reconcile.steps import Create
from shared.flows import maintenance, orphans
from shared.flows.vm_metadata import metadata
from shared.memory.fleet import MemoryFleet
from shared.messaging import google_events
from tests.support.jobs import a_job
from tests.support.world import World, in_turn

SWEEP_S = 60
FORGOTTEN = "forgotten_1"


def sweep(world: World, times: int = 1) -> None:
    for _ in range(times):
        world.wait(SWEEP_S)
        world.sweep()
        world.deliver()


def must(vm: Vm | None) -> Vm:
    assert vm is not None
    return vm


def make_vms(world: World, job: Job) -> tuple[Vm, ...]:
    """The VMs of a job, whether it exists or not."""
    replicas = tuple(Replica(1, replica_id) for replica_id in job.plan.replica_ids)
    for step in vm_steps(job, desired_vms(job, replicas), ()):
        assert isinstance(step, Create)
        made = world.machines
        world.fleet.create(job, step, metadata(job, step, made.project, made.addresses, made.agent_files))
    return world.fleet.list_vms(job.job_id)


def abandoned(world: World) -> tuple[Vm, ...]:
    """VMs of a job that nobody knows: its records were lost, or never written."""
    return make_vms(world, a_job(JobState.PREPARING, job_id=FORGOTTEN))


def left(world: World) -> tuple[Vm, ...]:
    return world.fleet.list_vms(FORGOTTEN)


def search(world: World, fleet: MemoryFleet | None = None) -> None:
    orphans.handle(fleet or world.fleet, world.deps, orphans.Patience(), in_turn)


def forget_inserts(world: World) -> None:
    """The same insert again is another one: the cloud remembers requests for a while only."""
    world.fleet._outcomes.clear()


def entry(vm: Vm, method: str, **changes: object) -> bytes:
    return json.dumps(
        {
            "protoPayload": {
                "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
                "serviceName": "compute.googleapis.com",
                "methodName": f"compute.instances.{method}",
                "resourceName": f"projects/p/zones/{vm.zone}/instances/{vm.name}",
            },
            "resource": {
                "type": "gce_instance",
                "labels": {"instance_id": vm.instance_id, "project_id": "p", "zone": vm.zone},
            },
            "timestamp": "2026-11-21T03:00:20.123456Z",
            "logName": "projects/p/logs/cloudaudit.googleapis.com%2Fsystem_event",
            **changes,
        }
    ).encode()


def told(world: World, data: bytes) -> None:
    maintenance.handle(google_events.decode_maintenance(data), world.deps)
