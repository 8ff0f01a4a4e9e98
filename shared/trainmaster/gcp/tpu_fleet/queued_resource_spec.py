"""The request of a queued resource, and an existing one as a Vm.

A queued resource is a request that Cloud TPU keeps until it has capacity for a node. Its states,
and the status of the Vm:

CREATING, ACCEPTED, WAITING_FOR_RESOURCES   QUEUED
PROVISIONING                                QUEUED     from now on, the node exists as well
FAILED                                      REFUSED    stays, and uses quota, until it is deleted
ACTIVE without its node, SUSPENDED          STOPPED    Cloud TPU or a user took the node away
SUSPENDING, DELETING                        STOPPING
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from google.cloud import tpu_v2
from google.protobuf import duration_pb2, json_format

from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import PriceClass
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import replica_id_from_vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.rules.capacity import provisioning_deadline
from trainmaster.core.timeouts import PROVISIONING_MAX_S
from trainmaster.gcp.rest_api import Json
from trainmaster.gcp.tpu_fleet.purchase_requests import add_purchase, alpha_fields
from trainmaster.gcp.vm_labels import LABEL_VM_GENERATION, directive_of

_State = tpu_v2.QueuedResourceState.State
_STATUSES: Final = {
    _State.FAILED: VmStatus.REFUSED,
    _State.ACTIVE: VmStatus.STOPPED,
    _State.SUSPENDED: VmStatus.STOPPED,
    _State.SUSPENDING: VmStatus.STOPPING,
    _State.DELETING: VmStatus.STOPPING,
}


def request(parent: str, job: Job, create: Create, node: tpu_v2.Node) -> tpu_v2.QueuedResource:
    """Return the request for the only node of `create`.

    It replaces the node's scheduling configuration by its own fields.
    """
    node = tpu_v2.Node(node)
    del node.scheduling_config
    (name,) = create.names
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=name, node=node)
    queued = tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]),
        queueing_policy=_policy(provisioning_deadline(job)),
    )
    add_purchase(queued, create.price, parent)
    return queued


def alpha_request(queued: tpu_v2.QueuedResource, price: PriceClass, plan: Plan) -> Json | None:
    """Return the request in v2alpha1, if only that API has the price class; else None."""
    added = alpha_fields(price, plan)
    if added is None:
        return None
    return {**json_format.MessageToDict(tpu_v2.QueuedResource.pb(queued)), **added}


def node_of(queued: tpu_v2.QueuedResource) -> tpu_v2.Node:
    """Return the node that the queued resource requests; an empty node if it requests none."""
    return queued.tpu.node_spec[0].node if queued.tpu.node_spec else tpu_v2.Node()


def vm_of(queued: tpu_v2.QueuedResource) -> Vm:
    """Return the queued resource as a VM. Raises ValueError if no replica can have the node's
    name.
    """
    # projects/P/locations/ZONE/queuedResources/NAME
    _, _, _, zone, _, name = queued.name.split("/")
    node = node_of(queued)
    created_at = None
    if queued.create_time:
        created_at = datetime.fromtimestamp(queued.create_time.timestamp(), UTC)
    by_service = queued.state.state_initiator == tpu_v2.QueuedResourceState.StateInitiator.SERVICE
    return Vm(
        name=name,
        zone=zone,
        instance_id=identity(queued),
        status=_STATUSES.get(queued.state.state, VmStatus.QUEUED),
        replica_id=replica_id_from_vm_name(name),
        vm_generation=int(node.labels.get(LABEL_VM_GENERATION, "0")),
        directive=directive_of(node.labels),
        fingerprint="",
        created_at=created_at,
        is_tpu=True,
        loss=LossCause.PREEMPTION if by_service else LossCause.GONE,
    )


def identity(queued: tpu_v2.QueuedResource) -> str:
    """Return what identifies the queued resource among others of its name: its creation time,
    because it has no numeric id.
    """
    return f"{queued.name.rpartition('/')[2]}-queued-{int(queued.create_time.timestamp() * 1000)}"


def _policy(until: datetime | None) -> tpu_v2.QueuedResource.QueueingPolicy:
    """Return how long the queued resource may wait.

    Without a limit, a forgotten one could create a node weeks later.
    """
    if until is None:
        week = duration_pb2.Duration(seconds=PROVISIONING_MAX_S)
        return tpu_v2.QueuedResource.QueueingPolicy(valid_until_duration=week)
    return tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=until)
