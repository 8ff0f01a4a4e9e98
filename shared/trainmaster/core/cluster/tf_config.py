"""How the training code sees its cluster: TF_CONFIG, CLUSTER_SPEC and its rank.

They are made once per role, because one bulk insert gives all its VMs the same metadata. The agent
adds the task index (docs/interfaces.md section 3). Source of the shapes: the documented TF_CONFIG
of AI Platform Training (the service) and real replica logs; for worker pools, Vertex AI's
documented CLUSTER_SPEC as XManager reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.package_uri import without_generation
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reconcile.slice_addresses import slice_placeholder

_CLOUD_DIGITS: Final = 16
"""Hexadecimal digits in `task.cloud` of TF_CONFIG, a name that differs for each job."""

RANKED: Final = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
"""Roles that take part in collectives, in rank order: the primary is rank 0.

Source: PyTorch on the service.
"""

POOLS: Final = {
    TaskType.CHIEF: "workerpool0",
    TaskType.MASTER: "workerpool0",
    TaskType.WORKER: "workerpool1",
    TaskType.PS: "workerpool2",
    TaskType.EVALUATOR: "workerpool3",
}
"""Worker pool of each role. Source: Vertex AI's documented order of worker pools."""

LOOPBACK: Final = "127.0.0.1"

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster of a job. Evaluators have addresses, but are not members of it."""

    job: Job
    project: str
    addresses: Mapping[ReplicaId, str]
    """`host:port` of every replica."""

    def address(self, replica_id: ReplicaId) -> str:
        """Return the `host:port` that programs get for a replica.

        A replica without peers gets the loopback address. Source: logs of the service's
        single-replica jobs. A slice with peers gets a placeholder, which the directive of each
        incarnation resolves.
        """
        _, _, port = self.addresses[replica_id].rpartition(":")
        slices = self.job.plan.slices
        if replica_id in slices:
            return f"{slice_placeholder(slices.index(replica_id))}:{port}"
        is_alone = sum(group.count * group.hosts for group in self.job.plan.groups) == 1
        return f"{LOOPBACK}:{port}" if is_alone else self.addresses[replica_id]

    def roles(self) -> dict[str, list[str]]:
        """Return the addresses of the cluster's members by task type, in index order."""
        roles: dict[str, list[str]] = {}
        for replica_id in self.job.plan.replica_ids:
            if replica_id.task_type is not TaskType.EVALUATOR:
                roles.setdefault(replica_id.task_type, []).append(self.address(replica_id))
        return roles

    def tf_config(self, task_type: TaskType) -> Json:
        """Return TF_CONFIG without `task.index`."""
        trial = trial_number(self.job.job_id)
        cloud = hashlib.sha256(self.job.job_id.encode()).hexdigest()[:_CLOUD_DIGITS]
        return {
            "cluster": self.roles(),
            "task": {
                "type": task_type,
                **({"trial": trial} if trial else {}),
                "cloud": f"w{cloud}-ml",
            },
            "job": self.job_description(task_type),
            "environment": "cloud",
        }

    def cluster_spec(self, task_type: TaskType) -> Json:
        """Return CLUSTER_SPEC without `task.index`. Its `job` is JSON text."""
        trial = trial_number(self.job.job_id)
        spec = {
            "cluster": self.roles(),
            "environment": "cloud",
            "task": {"type": task_type, "trial": trial},
            "job": json.dumps(self.job_description(task_type), separators=(",", ":")),
        }
        if self.job.plan.origin.dialect is Dialect.VERTEX:
            return {
                **spec,
                "cluster": self._pools(),
                "task": {"type": POOLS[task_type], "trial": trial},
            }
        return spec

    def job_description(self, task_type: TaskType) -> Json:
        """Return what programs see of the job: its TrainingInput in snake case, or the program of
        their worker pool.
        """
        if self.job.plan.origin.dialect is Dialect.VERTEX:
            return self._pool_program(task_type)
        return _training_input(self.job.spec_json)

    def world_size(self) -> int:
        """Return the number of ranks: one per host of the ranked roles."""
        return sum(group.count * group.hosts for group in self._ranked_groups())

    def rank_base(self, task_type: TaskType) -> int | None:
        """Return the rank of the role's first host; None if the role has no ranks."""
        if task_type not in RANKED:
            return None
        before = RANKED[: RANKED.index(task_type)]
        return sum(
            group.count * group.hosts
            for group in self._ranked_groups()
            if group.task_type in before
        )

    def slice_base(self, task_type: TaskType) -> int | None:
        """Return the number of the role's first slice; None unless the job has several slices, all
        of one type.
        """
        plan = self.job.plan
        first = ReplicaId(task_type, 0)
        types = {plan.group(replica_id.task_type).tpu for replica_id in plan.slices}
        has_one_slice = len(plan.slices) <= 1
        if has_one_slice or len(types) > 1 or first not in plan.slices:
            return None
        return plan.slices.index(first)

    def _ranked_groups(self) -> list[TaskGroup]:
        return [group for group in self.job.plan.groups if group.task_type in RANKED]

    def _pools(self) -> dict[str, list[str]]:
        """Return the addresses of all replicas by worker pool, in index order."""
        pools: dict[str, list[str]] = {}
        for replica_id in self.job.plan.replica_ids:
            pools.setdefault(POOLS[replica_id.task_type], []).append(self.address(replica_id))
        return pools

    def _pool_program(self, task_type: TaskType) -> Json:
        """Return how CLUSTER_SPEC describes the program of a worker pool.

        Source: for packages, a real replica log of 2026; the form for containers is by analogy.
        """
        program = self.job.plan.program_of(task_type)
        if program.container is None:
            return {
                "python_module": program.python_module,
                "package_uris": [without_generation(uri) for uri in program.package_uris],
                "job_args": list(program.args),
            }
        container = program.container
        return {
            "image_uri": container.image,
            "command": list(container.command),
            "args": list(program.args),
        }


@lru_cache(maxsize=16)  # for each variable of each role
def _training_input(spec_json: str) -> Json:
    spec = json.loads(spec_json)
    training_input = spec.get("trainingInput", spec.get("training_input", {}))
    return {_snake(key): _snake_keys(value) for key, value in training_input.items()}


@lru_cache(maxsize=1024)
def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _snake_keys(value: object) -> object:
    if isinstance(value, dict):
        return {_snake(key): _snake_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_snake_keys(item) for item in value]
    return value
