"""What a queued resource asks for, and what one that is there says of itself.

CREATING, ACCEPTED, WAITING_FOR_RESOURCES, PROVISIONING    QUEUED     (from PROVISIONING on there is a node, too)
FAILED                                                     REFUSED    stays, and holds quota, until it is deleted
ACTIVE without its node, SUSPENDED                         STOPPED    Cloud TPU, or somebody, took the node
SUSPENDING, DELETING                                       STOPPING
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.cloud import tpu_v2
from google.protobuf import duration_pb2, json_format

from shared.core.events import LossCause
from shared.core.model.job import FLEX_START_MAX_S, FUSE_SLACK_S, Job, Plan, TpuQueue
from shared.core.reconcile.plan import Create, Vm, VmStatus, replica_id_from_vm_name
from shared.core.rules.capacity import PROVISIONING_MAX_S, provisioning_until
from shared.gcp.marks import DIRECTIVE_KEY, LABEL_VM_GENERATION, parse_directive
from shared.gcp.tpu_fleet.rest import Json

_State = tpu_v2.QueuedResourceState.State
_STATUSES: Final = {
    _State.FAILED: VmStatus.REFUSED,
    _State.ACTIVE: VmStatus.STOPPED,
    _State.SUSPENDED: VmStatus.STOPPED,
    _State.SUSPENDING: VmStatus.STOPPING,
    _State.DELETING: VmStatus.STOPPING,
}


def request(parent: str, job: Job, create: Create, node: tpu_v2.Node) -> tpu_v2.QueuedResource:
    """For the one node of this create. How it is bought is the request's to say, no longer the node's."""
    node = tpu_v2.Node(node)
    del node.scheduling_config
    (name,) = create.names
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
    queued = tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]), queueing_policy=_policy(provisioning_until(job))
    )
    if create.spot:
        queued.spot = tpu_v2.QueuedResource.Spot()
    elif job.plan.reservation:
        queued.reservation_name = _reservation(job.plan.reservation, parent)
    return queued


def flex_start(queued: tpu_v2.QueuedResource, plan: Plan) -> Json:
    """The same in v2alpha1, for a bounded time: as long as the job may run, with what it takes to come up."""
    run_s = min(plan.max_running_s + FUSE_SLACK_S, FLEX_START_MAX_S)
    found: Json = json_format.MessageToDict(tpu_v2.QueuedResource.pb(queued))
    return {**found, "provisioningModel": "FLEX_START", "runDuration": {"maxRunDuration": f"{run_s}s"}}


def is_queued(create: Create) -> bool:
    return create.group.tpu is not None and create.group.tpu.queue is not None


def is_flexible(create: Create) -> bool:
    return create.group.tpu is not None and create.group.tpu.queue is TpuQueue.FLEX_START


def node_of(queued: tpu_v2.QueuedResource) -> tpu_v2.Node:
    """That it asks for; an empty one where it asks for none."""
    return queued.tpu.node_spec[0].node if queued.tpu.node_spec else tpu_v2.Node()


def vm_of(queued: tpu_v2.QueuedResource) -> Vm:
    """Raises ValueError where no replica has the node's name. A queued resource has no numeric id: its name and the time
    at which it was made tell it from a younger one."""
    _, _, _, zone, _, name = queued.name.split("/")
    node = node_of(queued)
    by_service = queued.state.state_initiator == tpu_v2.QueuedResourceState.StateInitiator.SERVICE
    return Vm(
        name=name,
        zone=zone,
        instance_id=identity(queued),
        status=_STATUSES.get(queued.state.state, VmStatus.QUEUED),
        replica_id=replica_id_from_vm_name(name),
        vm_generation=int(node.labels.get(LABEL_VM_GENERATION, "0")),
        directive=parse_directive(node.metadata.get(DIRECTIVE_KEY)),
        fingerprint="",
        created_at=datetime.fromtimestamp(queued.create_time.timestamp(), UTC) if queued.create_time else None,
        is_tpu=True,
        loss=LossCause.PREEMPTION if by_service else LossCause.GONE,
    )


def identity(queued: tpu_v2.QueuedResource) -> str:
    return f"{queued.name.rpartition('/')[2]}-queued-{int(queued.create_time.timestamp() * 1000)}"


def _policy(until: datetime | None) -> tpu_v2.QueuedResource.QueueingPolicy:
    """None waits for ever: what nobody deletes would be paid for some day."""
    if until is None:
        week = duration_pb2.Duration(seconds=PROVISIONING_MAX_S)
        return tpu_v2.QueuedResource.QueueingPolicy(valid_until_duration=week)
    return tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=until)


def _reservation(name: str, parent: str) -> str:
    """`projects/P/reservations/NAME`, or a name of this project's. Source: QueuedResource.reservation_name."""
    _, project, _, zone = parent.split("/")
    if name.startswith("projects/"):
        _, project, _, name = name.split("/")
    return f"projects/{project}/locations/{zone}/reservations/{name}"
