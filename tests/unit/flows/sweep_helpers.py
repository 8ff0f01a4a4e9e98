"""Helpers for tests of the sweep: run it, create orphan VMs, deliver entries of Compute's audit
log.
"""

from __future__ import annotations

import json
from dataclasses import replace

from tests.support.jobs import a_job
from tests.support.world import World
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows import maintenance
from trainmaster.flows.provisioning import vm_check
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.messaging import google_events
from trainmaster_local.memory.fleet import MemoryFleet

SWEEP_S = 60
"""Interval of the sweep, the scheduled pass for what no event reported."""
FORGOTTEN = "forgotten_1"
"""Id of a job that is not stored. VMs with its label are orphans."""


def sweep(world: World, *, times: int = 1) -> None:
    """Run the scheduled sweep `times` times. A minute passes before each."""
    for _ in range(times):
        world.wait(SWEEP_S)
        world.sweep()
        world.deliver()


def make_vms(world: World, job: Job) -> tuple[Vm, ...]:
    """Create all VMs of a job, whether the job is stored or not."""
    replicas = tuple(Replica(1, replica_id) for replica_id in job.plan.replica_ids)
    for step in vm_steps(job, desired_vms(job, replicas, world.now), ()):
        assert isinstance(step, Create)
        fleet_deps = world.fleet_deps
        world.fleet.create(
            job,
            step,
            vm_metadata(
                job, step, fleet_deps.project, fleet_deps.addresses, fleet_deps.agent_files
            ),
        )
    return world.fleet.list_vms(job.job_id)


def make_orphans(world: World) -> tuple[Vm, ...]:
    """Create the VMs of a job that is not stored."""
    return make_vms(world, a_job(JobState.PREPARING, job_id=FORGOTTEN))


def orphan_vms(world: World) -> tuple[Vm, ...]:
    """Return the orphans that exist."""
    return world.fleet.list_vms(FORGOTTEN)


def search_orphans(world: World, fleet: MemoryFleet | None = None) -> None:
    """Search for VMs without a job once, as the sweep requests it."""
    vm_check.handle(replace(world.fleet_deps, fleet=fleet or world.fleet), world.deps)


def forget_inserts(world: World) -> None:
    """Forget request ids, as Compute does after a while: the same insert then creates VMs again."""
    world.fleet._outcomes.clear()


def audit_log_entry(vm: Vm, method: str, **changes: object) -> bytes:
    """Return an entry of Compute Engine's audit log about this VM. `method`: such as
    `preempted`.
    """
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


def deliver_entry(world: World, data: bytes) -> None:
    """Deliver an entry of the audit log to the function `maintenance`."""
    maintenance.handle(google_events.decode_maintenance(data), world.deps)
