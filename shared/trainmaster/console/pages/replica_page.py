"""The page of one replica: the environment variables that its program gets.

They are computed as the agent on the VM does it. Some are those of the cluster, the members of the
job that know each other's addresses; the job sets others itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    job = find_job(console, job_id).placed  # with the zone and machines that it has now
    if job.tuning is not None:
        raise NotFoundError(f"{job_id} is a tuning job: its trials have replicas")
    replica_id = parse_replica(replica, job)
    vm_names = {other: vm_name(job.set_id, other) for other in job.plan.replica_ids}
    addresses = {
        other: console.address_book.address(name, job.zone) for other, name in vm_names.items()
    }
    cluster = Cluster(job, console.project, addresses)
    tf_config = _tf_config(cluster, replica_id)
    variables = _variables(cluster, replica_id, vm_names)
    return ReplicaPage(
        job=job,
        replica_id=replica_id,
        vm=vm_names[replica_id],
        tf_config=json.dumps(tf_config, indent=2, ensure_ascii=False),
        variables=tuple(sorted(variables.items())),
    )


def _tf_config(cluster: Cluster, replica_id: ReplicaId) -> Mapping[str, object]:
    """Return TF_CONFIG of the replica: that of its role, with its own index."""
    tf_config = cluster.tf_config(replica_id.task_type)
    task = tf_config["task"]
    if isinstance(task, dict):
        return {**tf_config, "task": {**task, "index": replica_id.index}}
    return tf_config


def _variables(
    cluster: Cluster, replica_id: ReplicaId, vm_names: Mapping[ReplicaId, str]
) -> dict[str, str]:
    """Return the other variables of the replica: the cluster's, and then those that the job sets.

    `vm_names`: of all replicas.
    """
    job = cluster.job
    task_type = replica_id.task_type
    role_names = tuple(name for other, name in vm_names.items() if other.task_type is task_type)
    variables = environment(cluster, task_type, job.zone, role_names)
    first_rank = cluster.rank_base(task_type)  # of the role; each host of a TPU slice has a rank
    if first_rank is not None:
        hosts = job.plan.group(task_type).hosts
        variables["RANK"] = str(first_rank + replica_id.index * hosts)
    own = job.plan.program_of(task_type).environment
    has_one_rank = cluster.world_size() == 1
    if has_one_rank:  # the agent sets only those that the job asks for (`program.environment`)
        for name in set(RANK_VARIABLES) - {variable.name for variable in own}:
            variables.pop(name, None)
    for variable in own:
        if variable.name in RANK_VARIABLES:
            continue  # the job only asks for the cluster's value
        variables[variable.name] = (
            f"(secret {variable.secret})" if variable.secret else variable.value
        )
    return variables
