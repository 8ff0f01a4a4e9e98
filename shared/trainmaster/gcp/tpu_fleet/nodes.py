"""The request of a TPU node, and an existing node as a Vm."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from google.cloud import tpu_v2

from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Tpu
from trainmaster.core.model.vm import LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import replica_id_from_vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.tpu_fleet.purchase_requests import node_scheduling
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.gcp.vm_labels import LABEL_VM_GENERATION, directive_of, labels

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
CREATION_S: Final = 600
"""Assumed time between the request of a node and its start.

Cloud TPU does not report the start. Slices take minutes. Noticing a startup timeout ten minutes
late costs less than replacing a pod that is still starting.
"""

_GENERATIONS: Final = {
    "v2": tpu_v2.AcceleratorConfig.Type.V2,
    "v3": tpu_v2.AcceleratorConfig.Type.V3,
    "v4": tpu_v2.AcceleratorConfig.Type.V4,
    "v5litepod": tpu_v2.AcceleratorConfig.Type.V5LITE_POD,
    "v5p": tpu_v2.AcceleratorConfig.Type.V5P,
    "v6e": tpu_v2.AcceleratorConfig.Type.V6E,
}
_State = tpu_v2.Node.State
_STATUSES: Final = {
    _State.READY: VmStatus.RUNNING,
    _State.DELETING: VmStatus.STOPPING,
    _State.STOPPING: VmStatus.STOPPING,
    _State.HIDING: VmStatus.STOPPING,
    _State.STOPPED: VmStatus.STOPPED,
    _State.PREEMPTED: VmStatus.STOPPED,
    _State.TERMINATED: VmStatus.STOPPED,
    _State.HIDDEN: VmStatus.STOPPED,
    _State.UNKNOWN: VmStatus.STOPPED,  # "after a failed repair"
}
"""In any other state the node is starting: CREATING, STARTING, RESTARTING, REIMAGING, REPAIRING,
UNHIDING.
"""
_LOSSES: Final = {
    _State.PREEMPTED: LossCause.PREEMPTION,
    _State.TERMINATED: LossCause.MAINTENANCE,
    _State.UNKNOWN: LossCause.HOST_ERROR,
}
_HEALTHY: Final = (tpu_v2.Node.Health.HEALTHY, tpu_v2.Node.Health.HEALTH_UNSPECIFIED)

_log = logging.getLogger(__name__)


def resource(
    job: Job, create: Create, defaults: VmDefaults, metadata: Mapping[str, str]
) -> tpu_v2.Node:
    """Return the node to create. Raises ValueError for a topology of an unknown type of TPU."""
    tpu = create.group.tpu
    if tpu is None:
        raise ValueError(f"{create.group.task_type} has no TPUs")
    node = tpu_v2.Node(
        runtime_version=tpu.runtime,
        network_config=_network(job.plan, defaults),
        scheduling_config=node_scheduling(create.price),
        labels=labels(job, create),
        metadata=metadata,
    )
    if tpu.topology:
        node.accelerator_config = _accelerator(tpu, tpu.topology)
    else:
        node.accelerator_type = tpu.type
    email = job.plan.access.service_account or defaults.service_account
    if email:
        node.service_account = tpu_v2.ServiceAccount(email=email, scope=[SCOPE])
    return node


def _accelerator(tpu: Tpu, topology: str) -> tpu_v2.AcceleratorConfig:
    generation = tpu.type.partition("-")[0]
    if generation not in _GENERATIONS:
        raise ValueError(
            f"{tpu.type} is not a known type of TPU: known types begin with"
            f" {', '.join(_GENERATIONS)}"
        )
    return tpu_v2.AcceleratorConfig(type_=_GENERATIONS[generation], topology=topology)


def _network(plan: Plan, defaults: VmDefaults) -> tpu_v2.NetworkConfig:
    """Return the network of the node, without an external address."""
    network, subnetwork = defaults.network_of(plan)
    return tpu_v2.NetworkConfig(
        network=_with_project(network, defaults.project),
        subnetwork=_with_project(subnetwork, defaults.project),
        enable_external_ips=False,
    )


def _with_project(reference: str, project: str) -> str:
    """Return the reference with the project.

    Cloud TPU requires it, and Compute Engine does not.
    """
    is_partial = reference.startswith(("global/", "regions/"))
    return f"projects/{project}/{reference}" if is_partial else reference


def vm_of(node: tpu_v2.Node) -> Vm:
    """Return the node as a VM. Raises ValueError if no replica can have the node's name."""
    _, _, _, zone, _, name = node.name.split("/")  # projects/P/locations/ZONE/nodes/NAME
    status = _STATUSES.get(node.state, VmStatus.CREATING)
    created_at = None
    started_at = None
    if node.create_time:
        created_at = datetime.fromtimestamp(node.create_time.timestamp(), UTC)
        if status is VmStatus.RUNNING:
            started_at = created_at + timedelta(seconds=CREATION_S)
    return Vm(
        name=name,
        zone=zone,
        instance_id=str(node.id),
        status=status,
        replica_id=replica_id_from_vm_name(name),
        vm_generation=int(node.labels.get(LABEL_VM_GENERATION, "0")),
        directive=directive_of(node.labels),
        fingerprint=fingerprint(node),
        created_at=created_at,
        started_at=started_at,
        is_tpu=True,
        loss=_LOSSES.get(node.state, LossCause.GONE),
        # Source: Node.network_endpoints: the first one is the address of the slice.
        address=node.network_endpoints[0].ip_address if node.network_endpoints else "",
    )


def fingerprint(node: tpu_v2.Node) -> str:
    """Return a hash of the labels, which change with every directive.

    Cloud TPU has no fingerprint of its own.
    """
    labels = json.dumps(dict(node.labels), sort_keys=True)
    return hashlib.sha256(labels.encode()).hexdigest()[:16]


def log_health(node: tpu_v2.Node) -> None:
    """Log health and symptoms for people.

    If they end a program or a slice, its exit or the node's state shows it.
    """
    if node.health not in _HEALTHY:
        _log.warning(
            "TPU node %s is %s: %s",
            node.name,
            node.health.name,
            node.health_description or "no description",
        )
    for symptom in node.symptoms:
        kind = tpu_v2.Symptom.SymptomType(symptom.symptom_type).name
        _log.warning(
            "TPU node %s, worker %s: %s: %s", node.name, symptom.worker_id, kind, symptom.details
        )
