"""What CreateNode asks for, and what a node that is there says of itself."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from google.cloud import tpu_v2

from shared.core.events import LossCause
from shared.core.model.job import Job, Plan, Tpu
from shared.core.reconcile.plan import Create, Vm, VmStatus, replica_id_from_vm_name
from shared.gcp.marks import DIRECTIVE_KEY, LABEL_VM_GENERATION, labels, parse_directive

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
CREATION_S: Final = 600
"""Cloud TPU says when a node was asked for, not when it came up: a node that is up has been so for the time since, but
for this. Slices take minutes; a silence found ten minutes late costs less than a pod taken for silent."""

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
"""Any other is on its way up: CREATING, STARTING, RESTARTING, REIMAGING, REPAIRING, UNHIDING."""
_LOSSES: Final = {
    _State.PREEMPTED: LossCause.PREEMPTION,
    _State.TERMINATED: LossCause.MAINTENANCE,
    _State.UNKNOWN: LossCause.HOST_ERROR,
}
_WELL: Final = (tpu_v2.Node.Health.HEALTHY, tpu_v2.Node.Health.HEALTH_UNSPECIFIED)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all nodes of an installation; as `shared.gcp.compute_fleet.properties.Site`."""

    project: str
    service_account: str
    network: str
    subnetwork: str


def resource(job: Job, create: Create, site: Site, metadata: Mapping[str, str]) -> tpu_v2.Node:
    """Raises ValueError for a type that has no generation of ours where a topology is asked for."""
    tpu = create.group.tpu
    if tpu is None:
        raise ValueError(f"{create.group.task_type} is no group of TPUs")
    node = tpu_v2.Node(
        runtime_version=tpu.runtime,
        network_config=_network(job.plan, site),
        scheduling_config=_scheduling(job.plan, create),
        labels=labels(job, create),
        metadata=metadata,
    )
    if tpu.topology:
        node.accelerator_config = _accelerator(tpu, tpu.topology)
    else:
        node.accelerator_type = tpu.type
    if email := job.plan.service_account or site.service_account:
        node.service_account = tpu_v2.ServiceAccount(email=email, scope=[SCOPE])
    return node


def _accelerator(tpu: Tpu, topology: str) -> tpu_v2.AcceleratorConfig:
    generation = tpu.type.partition("-")[0]
    if generation not in _GENERATIONS:
        raise ValueError(f"{tpu.type} is no type of TPU: it begins with none of {', '.join(_GENERATIONS)}")
    return tpu_v2.AcceleratorConfig(type_=_GENERATIONS[generation], topology=topology)


def _network(plan: Plan, site: Site) -> tpu_v2.NetworkConfig:
    """No external addresses. A job's own network brings its own subnetworks."""
    network = plan.network or site.network
    subnetwork = "" if plan.network else site.subnetwork.replace("{region}", plan.region)
    return tpu_v2.NetworkConfig(
        network=_absolute(network, site.project),
        subnetwork=_absolute(subnetwork, site.project),
        enable_external_ips=False,
    )


def _absolute(reference: str, project: str) -> str:
    """Compute takes `global/networks/default`; Cloud TPU wants to be told the project."""
    is_partial = reference.startswith(("global/", "regions/"))
    return f"projects/{project}/{reference}" if is_partial else reference


def _scheduling(plan: Plan, create: Create) -> tpu_v2.SchedulingConfig:
    """A reservation of TPUs is used by its zone and type, not by its name; Spot capacity is never reserved."""
    return tpu_v2.SchedulingConfig(spot=create.spot, reserved=plan.reservation is not None and not create.spot)


def vm_of(node: tpu_v2.Node) -> Vm:
    """Raises ValueError where no replica has the node's name."""
    _, _, _, zone, _, name = node.name.split("/")
    created_at = datetime.fromtimestamp(node.create_time.timestamp(), UTC) if node.create_time else None
    status = _STATUSES.get(node.state, VmStatus.CREATING)
    is_up = status is VmStatus.RUNNING and created_at is not None
    return Vm(
        name=name,
        zone=zone,
        instance_id=str(node.id),
        status=status,
        replica_id=replica_id_from_vm_name(name),
        vm_generation=int(node.labels.get(LABEL_VM_GENERATION, "0")),
        directive=parse_directive(node.metadata.get(DIRECTIVE_KEY)),
        fingerprint=fingerprint(node),
        created_at=created_at,
        started_at=created_at + timedelta(seconds=CREATION_S) if is_up and created_at else None,
        is_tpu=True,
        loss=_LOSSES.get(node.state, LossCause.GONE),
        # Source: Node.network_endpoints: whoever reaches a slice reaches out to the first one.
        address=node.network_endpoints[0].ip_address if node.network_endpoints else "",
    )


def fingerprint(node: tpu_v2.Node) -> str:
    """Of the metadata, which Cloud TPU gives none: what has another one was written to meanwhile."""
    said = json.dumps(dict(node.metadata), sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def tell_of_trouble(node: tpu_v2.Node) -> None:
    """Health and symptoms are for people: where they end a program or a slice, its exit or the node's state says so."""
    if node.health not in _WELL:
        _log.warning("TPU node %s is %s: %s", node.name, node.health.name, node.health_description or "no more is said")
    for symptom in node.symptoms:
        kind = tpu_v2.Symptom.SymptomType(symptom.symptom_type).name
        _log.warning("TPU node %s, worker %s: %s: %s", node.name, symptom.worker_id, kind, symptom.details)
