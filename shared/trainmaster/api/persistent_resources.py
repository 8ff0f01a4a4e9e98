"""`projects.locations.persistentResources` of Vertex AI v1: machines that are kept for a next job.
Source: its discovery document.

The first job that names a resource makes it, and it exists while machines are kept. Machines that a
job without `persistentResourceId` keeps are shown as a resource with the job's name.

A machine set is the VMs that one job after another uses; its holder is the last of these jobs.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from trainmaster.api import errors
from trainmaster.api.errors import ApiError, Json
from trainmaster.api.request import Call, Service, caller_name
from trainmaster.api.vertex_resource import completed_deletion, parent
from trainmaster.core.model.fit import resource_of
from trainmaster.core.model.job import public_id
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.flows.user_requests import release_machines
from trainmaster.presentation.job_view import timestamp

CREATE_REFUSED: Final = (
    "Persistent resources are not created by themselves: the first job with"
    " jobSpec.persistentResourceId keeps its machines for the next one (trainmaster.keepMachines)."
)


def create(call: Call, service: Service) -> Json:
    """Refuse the request, because jobs create these resources."""
    del call, service
    raise ApiError(501, "UNIMPLEMENTED", CREATE_REFUSED)


def list_resources(call: Call, service: Service) -> Json:
    """Return all resources of the location that the path names, sorted by name."""
    sets_by_name = _resources(call, service)
    views = [_view(name, sets, call) for name, sets in sorted(sets_by_name.items())]
    return {"persistentResources": views} if views else {}


def get(call: Call, service: Service) -> Json:
    """Return the resource that the path names. Raises ApiError if there is none."""
    name = call.params["resource"]
    return _view(name, _find(call, service), call)


def delete(call: Call, service: Service) -> Json:
    """Release the machines. Their VMs are deleted soon after."""
    for machines in _find(call, service):
        release_machines(machines.holder, service.deps, by=caller_name(call, service))
    return completed_deletion(call, service)


def _find(call: Call, service: Service) -> list[MachineSet]:
    """Return the sets of the resource that the path names. Raises ApiError if there is none."""
    name = call.params["resource"]
    sets = _resources(call, service).get(name)
    if not sets:
        raise errors.not_found(f"{parent(call)}/persistentResources/{name}")
    return sets


def _resources(call: Call, service: Service) -> dict[str, list[MachineSet]]:
    """Return the sets that are kept in the location of the path, by the name of their resource."""
    sets_by_name: dict[str, list[MachineSet]] = defaultdict(list)
    for kept in service.deps.store.kept_machines():
        machines = kept.machine_set
        if machines.zone.rpartition("-")[0] == call.params["location"]:
            name = resource_of(machines) or public_id(machines.holder)
            sets_by_name[name].append(machines)
    return sets_by_name


def _view(name: str, sets: list[MachineSet], call: Call) -> Json:
    pools = [_pool(machines, group) for machines in sets for group in machines.groups]
    return {
        "name": f"{parent(call)}/persistentResources/{name}",
        "displayName": name,
        "resourcePools": pools,
        "state": "RUNNING",
        "createTime": timestamp(min(machines.ended_at for machines in sets)),
        "updateTime": timestamp(max(machines.ended_at for machines in sets)),
    }


def _pool(machines: MachineSet, group: TaskGroup) -> Json:
    machine: Json = {"machineType": group.machine_type}
    if group.accelerator:
        machine["acceleratorType"] = group.accelerator.type.upper().replace("-", "_")
        machine["acceleratorCount"] = group.accelerator.count
    return {
        "id": f"{public_id(machines.holder)}-{group.task_type}",
        "machineSpec": machine,
        "replicaCount": str(group.count),
        "usedReplicaCount": "0",
        "diskSpec": {"bootDiskType": group.boot_disk_type, "bootDiskSizeGb": group.boot_disk_gib},
    }
