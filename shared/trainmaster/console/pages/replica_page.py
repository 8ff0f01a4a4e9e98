"""The page of one replica: the environment variables that its program gets."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainmaster.console.pages.job_page import find_job, parse_replica
from trainmaster.console.pages.service import Console, NotFoundError
from trainmaster.core.cluster.environment import environment
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import vm_name
from trainmaster.jobspec.fields.environment_variables import RANK_VARIABLES


@dataclass(frozen=True, slots=True)
class ReplicaPage:
    """The page of one replica."""

    job: Job
    replica_id: ReplicaId
    vm: str
    tf_config: str
    """TF_CONFIG of its program, indented."""
    variables: tuple[tuple[str, str], ...]
    """Name and value of the other environment variables.

    Secrets have a description in place of their value.
    """


def read_replica_page(console: Console, job_id: str, replica: str) -> ReplicaPage:
    """Return the page. Raises NotFoundError if there is no such job or replica."""
    job = find_job(console, job_id).placed
    if job.tuning is not None:
        raise NotFoundError(f"{job_id} is a tuning job: its trials have replicas")
    replica_id = parse_replica(replica, job)
    plan = job.plan
    task_type = replica_id.task_type
    vm_names = {other: vm_name(job.set_id, other) for other in plan.replica_ids}
    addresses = {
        other: console.address_book.address(name, job.zone) for other, name in vm_names.items()
    }
    cluster = Cluster(job, console.project, addresses)
    tf_config = cluster.tf_config(task_type)
    task = tf_config["task"]
    if isinstance(task, dict):
        tf_config = {**tf_config, "task": {**task, "index": replica_id.index}}
    role_names = tuple(name for other, name in vm_names.items() if other.task_type is task_type)
    rank = cluster.rank_base(task_type)
    variables = environment(cluster, task_type, job.zone, role_names)
    if rank is not None:
        variables["RANK"] = str(rank + replica_id.index * plan.group(task_type).hosts)
    own = plan.program_of(task_type).environment
    if cluster.world_size() == 1:  # as `trainmaster.agent.program.environment` does
        for name in set(RANK_VARIABLES) - {variable.name for variable in own}:
            variables.pop(name, None)
    for variable in own:
        if variable.name not in RANK_VARIABLES:
            variables[variable.name] = (
                f"(secret {variable.secret})" if variable.secret else variable.value
            )
    return ReplicaPage(
        job,
        replica_id,
        vm_names[replica_id],
        json.dumps(tf_config, indent=2, ensure_ascii=False),
        tuple(sorted(variables.items())),
    )
