"""Required replicas: those without which a job cannot run.

All others are optional (`trainmaster.gang: false`).

    job                            required                                optional
    gang (the default)             all replicas                            none
    gang: false, parameter servers primary, parameter servers              workers, evaluators
    gang: false, independent       primary                                 all others
    gang: false, synchronous       all replicas but evaluators             evaluators

Optional replicas are requested up to the zone's capacity, and the rest later.
"""

from __future__ import annotations

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId, TaskType


def is_required(plan: Plan, replica_id: ReplicaId) -> bool:
    """Whether the job cannot run without this replica."""
    if plan.restarts.gang or replica_id == plan.primary:
        return True
    if plan.restarts.independent or not replica_id.is_in_cluster:
        return False
    has_servers = any(group.task_type is TaskType.PS for group in plan.groups)
    return not (has_servers and replica_id.task_type is TaskType.WORKER)


def required_replicas(plan: Plan) -> tuple[ReplicaId, ...]:
    """Return the required replicas, in the order of the plan."""
    return tuple(replica_id for replica_id in plan.replica_ids if is_required(plan, replica_id))
