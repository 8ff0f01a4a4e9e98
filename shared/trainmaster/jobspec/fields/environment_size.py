"""The size of the environment variables that describe the job and its cluster to the program.

Linux starts no program with a variable above 128 KiB. TF_CONFIG contains the address of every
replica and the job's description; CLUSTER_SPEC contains the description as JSON text within JSON,
where each quote has three characters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from trainmaster.core.cluster.environment import JOB_VARIABLE
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.model.vm_names import vm_name
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.problems import ROOT, Problem, Problems

VARIABLE_BYTES_MAX: Final = 128 * 1024 - 1
"""Longest `NAME=VALUE`.

Source: execve(2), MAX_ARG_STRLEN, 32 pages of 4 KiB with the null byte at the end.
"""
PROJECT_LENGTH_MAX: Final = 30
"""Longest project id. Source: Resource Manager, "Creating and managing projects"."""
_LONGEST_TRIAL: Final = 1_000
"""Number of a trial with the longest id."""
_BYTES_PER_SPEC_BYTE: Final = 16
"""Upper bound of what a byte of the spec takes in a variable; JSON within JSON takes up to 7."""
_BYTES_PER_REPLICA: Final = 200
"""Upper bound of what a replica's address takes in a variable; it takes up to 140 bytes."""


def check_environment_size(
    job_id: str,
    spec_json: str,
    plan: Plan,
    roles: Sequence[RoleRequest],
    problems: Problems,
    *,
    is_tuning: bool,
) -> None:
    """Add a problem if a variable could be too long for Linux.

    The zone and the project's name are not known yet: the longest ones that are possible count.
    """
    replicas = sum(group.count for group in plan.groups)
    bytes_at_most = _BYTES_PER_SPEC_BYTE * len(spec_json.encode()) + _BYTES_PER_REPLICA * replicas
    if bytes_at_most < VARIABLE_BYTES_MAX // 2:
        return  # as for almost all jobs
    longest_id = trial_id(job_id, _LONGEST_TRIAL) if is_tuning else job_id
    cluster = _longest_cluster(longest_id, spec_json, plan)
    name = ""
    size = 0
    for group in plan.groups:
        for variable, variable_bytes in _sizes(cluster, group).items():
            if variable_bytes > size:
                name = variable
                size = variable_bytes
    if size <= VARIABLE_BYTES_MAX:
        return
    problem = f"makes {name} {size} bytes long, and Linux allows a variable {VARIABLE_BYTES_MAX}"
    largest = max(roles, key=lambda role: role.count)
    if len(json.dumps(cluster.roles())) > VARIABLE_BYTES_MAX // 2:
        problems.add_text(
            largest.paths.count, problem, advice="use fewer replicas or a shorter jobId"
        )
    else:
        problems.add_of_document(
            Problem(ROOT, problem, example="put large inputs into files in gs://")
        )


def _longest_cluster(job_id: str, spec_json: str, plan: Plan) -> Cluster:
    """Return the cluster with its longest possible addresses (`trainmaster.gcp.addresses`)."""
    project = "p" * PROJECT_LENGTH_MAX
    zone = max(plan.where.zones, key=len)
    job = Job(
        job_id,
        spec_json,
        submission="",
        plan=plan,
        state=JobState.QUEUED,
        created_at=datetime.min.replace(tzinfo=UTC),
    )
    addresses = {
        replica_id: f"{vm_name(job_id, replica_id)}.{zone}.c.{project}.internal:2222"
        for replica_id in plan.replica_ids
    }
    return Cluster(job, project, addresses)


def _sizes(cluster: Cluster, group: TaskGroup) -> dict[str, int]:
    """Return the bytes of each variable, as the agent of the role's last replica sets it."""
    specs = {
        "TF_CONFIG": cluster.tf_config(group.task_type),
        "CLUSTER_SPEC": cluster.cluster_spec(group.task_type),
    }
    values = {
        name: f'{json.dumps(spec)}, "index": {group.count - 1}' for name, spec in specs.items()
    }
    values[JOB_VARIABLE] = json.dumps(
        cluster.job_description(group.task_type), separators=(",", ":")
    )
    return {name: len(f"{name}={value}".encode()) for name, value in values.items()}
