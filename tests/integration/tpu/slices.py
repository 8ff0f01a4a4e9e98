"""The emulator of Cloud TPU through the real client, its faults, and small jobs that use slices.

A slice is one or several TPU hosts that Cloud TPU creates and deletes together, as one node. It
takes the place of a job's VM. A directive is what the stored state orders the agent on it to do.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from tests.integration.compute.emulator import PROJECT, Emulator
from tests.support.jobs import a_job, a_plan
from tests.support.stack import eventually
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.purchase import OnDemand, PriceClass, Purchase
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import Directive, DirectiveAction, Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.tpu_fleet import TpuFleet
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Created, Fleet

ZONE = "us-central1-a"
OTHER_ZONE = "us-west4-a"
RUN = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)
RUNTIME = "v2-alpha-tpuv5-lite"
FOUR_HOSTS = Tpu("v5litepod-16", RUNTIME, hosts=4)
ONE_HOST = Tpu("v5litepod-4", RUNTIME)


@dataclass
class Slices:
    """The emulator, through the client library. Names are those of nodes in ZONE."""

    compute: Emulator
    """The process, which serves both APIs."""

    def __post_init__(self) -> None:
        options = ClientOptions(api_endpoint=self.compute.endpoint)
        self.client = tpu_v2.TpuClient(
            transport="rest", credentials=AnonymousCredentials(), client_options=options
        )

    def fleet(
        self, project: str = PROJECT, *, endpoint: str = "", wait_s: float = 20.0
    ) -> TpuFleet:
        return TpuFleet(
            VmDefaults(project), endpoint=endpoint or self.compute.endpoint, wait_s=wait_s
        )

    def run(
        self, name: str, script: str = "sleep 600", tpu: Tpu = FOUR_HOSTS, **changes: Any
    ) -> tpu_v2.Node:
        """Create a node that runs this script, and return it when it is READY.

        `changes`: its other fields.
        """
        metadata = {"startup-script": script, **changes.pop("metadata", {})}
        fields = {
            "accelerator_type": tpu.type,
            "runtime_version": tpu.runtime,
            "metadata": metadata,
            **changes,
        }
        self.done(self.client.create_node(parent=parent(), node_id=name, node=tpu_v2.Node(fields)))
        return self.get(name)

    def get(self, name: str, zone: str = ZONE) -> tpu_v2.Node:
        return self.client.get_node(name=f"{parent(zone)}/nodes/{name}")

    def state(self, name: str) -> str:
        """Return the name of the node's state; DELETED: there is no such node."""
        try:
            return str(self.get(name).state.name)
        except exceptions.NotFound:
            return "DELETED"

    def done(self, future: Any) -> operations_pb2.Operation:
        """Wait until an operation is done, with or without an error, and return it."""
        operation = future.operation

        def is_done() -> bool:
            nonlocal operation
            operation = self.client.get_operation(
                operations_pb2.GetOperationRequest(name=operation.name)
            )
            return bool(operation.done)

        eventually(is_done, 30)
        return operation

    def nodes(self) -> list[tpu_v2.Node]:
        return list(self.client.list_nodes(parent=parent("-")))

    def enqueue(self, name: str, **changes: Any) -> Any:
        """Create a queued resource for one node of the same name. Return the operation."""
        node = tpu_v2.Node(
            accelerator_type=ONE_HOST.type,
            runtime_version=RUNTIME,
            metadata={"startup-script": "sleep 600"},
        )
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent(), node_id=name, node=node)
        queued = tpu_v2.QueuedResource({"tpu": {"node_spec": [spec]}, **changes})
        return self.client.create_queued_resource(
            parent=parent(), queued_resource_id=name, queued_resource=queued
        )

    def queued(self, name: str) -> tpu_v2.QueuedResource:
        return self.client.get_queued_resource(name=f"{parent()}/queuedResources/{name}")

    def queue_state(self, name: str) -> str:
        """Return the name of the queued resource's state; DELETED: there is none."""
        try:
            return str(self.queued(name).state.state.name)
        except exceptions.NotFound:
            return "DELETED"

    def all_queued(self) -> list[tpu_v2.QueuedResource]:
        return list(self.client.list_queued_resources(parent=parent("-")))

    def logs(self, name: str) -> list[str]:
        """Return the output of each host of the youngest node of that name."""
        return logs_of(Path(self.compute.state_dir) / "serial", name)

    def fault(self, name: str, verb: str, **body: object) -> Any:
        """Let something happen to a node, such as `preempt`."""
        return self.compute.fault(name, verb, **body)

    def clear(self) -> None:
        """Remove all faults, queued resources and nodes."""
        self.compute.faults()
        for queued in self.all_queued():
            eventually(lambda queued=queued: self._delete_queued(queued.name), 30)  # type: ignore[misc]
        eventually(lambda: not self.all_queued(), 30)
        for node in self.nodes():
            eventually(lambda node=node: self._delete_node(node.name), 30)  # type: ignore[misc]
        eventually(lambda: not self.nodes(), 30)

    def _delete_queued(self, name: str) -> bool:
        """Return False if the resource cannot be deleted in its current state."""
        try:
            self.client.delete_queued_resource(
                tpu_v2.DeleteQueuedResourceRequest(name=name, force=True)
            )
        except exceptions.NotFound:
            return True
        except exceptions.BadRequest:
            return False
        return True

    def _delete_node(self, name: str) -> bool:
        """Return False if the node cannot be deleted in its current state."""
        try:
            self.client.delete_node(name=name)
        except exceptions.NotFound:
            return True
        except exceptions.BadRequest:
            return False
        return True


def parent(zone: str = ZONE) -> str:
    """Return the name of the location, which the names of its resources begin with."""
    return f"projects/{PROJECT}/locations/{zone}"


def a_tpu_job(
    tpu: Tpu = FOUR_HOSTS, count: int = 1, purchase: Purchase | None = None, **plan: Any
) -> Job:
    """Return a job with a new id. One slice is the chief, several are workers."""
    task_type = TaskType.CHIEF if count == 1 else TaskType.WORKER
    group = TaskGroup(task_type, count, machine_type="", tpu=tpu, purchase=purchase or Purchase())
    values = {"groups": (group,), "zones": (ZONE, OTHER_ZONE), **plan}
    return replace(a_job(plan=a_plan(**values)), job_id=f"slices_{uuid.uuid4().hex[:8]}")


def a_queued_job(price: PriceClass | None = None, **plan: Any) -> Job:
    """Return a job that was created now, and whose slice may wait in the queue for an hour."""
    purchase = Purchase(price or OnDemand(), is_queued=True)
    job = a_tpu_job(ONE_HOST, purchase=purchase, **{"max_wait_s": 3600, **plan})
    return replace(job, state=JobState.PREPARING, started_at=None, created_at=datetime.now(UTC))


def a_create(job: Job, **changes: Any) -> Create:
    """Return the step that creates the slices of the job's first task group."""
    group = job.plan.groups[0]
    replica_ids = tuple(ReplicaId(group.task_type, index) for index in range(group.count))
    names = tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids)
    create = Create(
        group,
        ZONE,
        vm_generation=1,
        directive=RUN,
        replica_ids=replica_ids,
        names=names,
        round=0,
        price=group.purchase.price,
    )
    return replace(create, **changes)


def a_metadata(script: str = "sleep 600", directive: Directive = RUN) -> dict[str, str]:
    """Return the metadata of a node that runs this script, with this directive."""
    body = {
        "attempt": directive.attempt,
        "incarnation": directive.incarnation,
        "action": directive.action,
    }
    return {"startup-script": script, "trainmaster-directive": json.dumps(body)}


def listed(fleet: Fleet, job: Job) -> tuple[Vm, ...]:
    """Return the slices of the job, as the fleet lists them."""
    return fleet.list_vms(job.job_id, job.plan.tpu_zones)


def create_slice(fleet: Fleet, job: Job) -> Vm:
    """Create the one slice of the job and return it."""
    assert fleet.create(job, a_create(job), a_metadata()) == Created()
    (vm,) = listed(fleet, job)
    return vm


def logs_of(folder: Path, name: str) -> list[str]:
    """Return the output of each host of the youngest node of that name, by index.

    `folder` has the file NAME-w-INDEX-….log of each host of each node.
    """
    youngest: dict[int, Path] = {}
    for path in sorted(folder.glob(f"{name}-w-*.log"), key=lambda path: path.stat().st_ctime):
        youngest[int(path.name.removeprefix(f"{name}-w-").partition("-")[0])] = path
    return [youngest[host].read_text() for host in sorted(youngest)]
