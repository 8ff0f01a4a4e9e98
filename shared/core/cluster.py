"""What the training code sees of its cluster: TF_CONFIG, CLUSTER_SPEC and the PyTorch variables.

Made once per role, because one bulk insert gives all its VMs the same metadata: the agent adds the task index (see
docs/interfaces.md section 3). Source of the shapes: the service's documented TF_CONFIG and real replica logs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.core.jobs import Job
from shared.core.seats import Seat, TaskType

RANKED: tuple[TaskType, ...] = (TaskType.CHIEF, TaskType.MASTER, TaskType.WORKER)
"""Roles that take part in a collective, in rank order: the primary is rank 0. Source: PyTorch on the service."""

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`addresses`: `host:port` per seat. Evaluators run beside the cluster, never in it."""

    job: Job
    project: str
    addresses: Mapping[Seat, str]

    def roles(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for seat in self.job.plan.seats:
            if seat.task_type is not TaskType.EVALUATOR:
                found.setdefault(seat.task_type, []).append(self.addresses[seat])
        return found

    def tf_config(self, task_type: TaskType) -> Json:
        """TF_CONFIG without `task.index`."""
        cloud = hashlib.sha256(self.job.job_id.encode()).hexdigest()[:16]
        return {
            "cluster": self.roles(),
            "task": {"type": task_type, "cloud": f"w{cloud}-ml"},
            "job": self.training_input(),
            "environment": "cloud",
        }

    def cluster_spec(self, task_type: TaskType) -> Json:
        """CLUSTER_SPEC without `task.index`: `job` is JSON text there."""
        return {
            "cluster": self.roles(),
            "environment": "cloud",
            "task": {"type": task_type, "trial": ""},
            "job": json.dumps(self.training_input(), separators=(",", ":")),
        }

    def training_input(self) -> Json:
        """The submitted TrainingInput in snake_case, as replicas of the service saw it."""
        spec = json.loads(self.job.spec_json)
        body = spec.get("trainingInput", spec.get("training_input", {}))
        return {_snake(key): _snake_keys(value) for key, value in body.items()}

    def rank_base(self, task_type: TaskType) -> int | None:
        """Rank of the role's index 0; None where the role has no rank."""
        if task_type not in RANKED:
            return None
        before = RANKED[: RANKED.index(task_type)]
        return sum(seat.task_type in before for seat in self.job.plan.seats)

    def environment(self) -> dict[str, str]:
        """The variables that are the same for every replica."""
        host, _, port = self.addresses[self.job.plan.primary].rpartition(":")
        return {
            "WORLD_SIZE": str(sum(seat.task_type in RANKED for seat in self.job.plan.seats)),
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "CLOUD_ML_JOB_ID": self.job.job_id,
            "CLOUD_ML_JOB": json.dumps(self.training_input(), separators=(",", ":")),
            "CLOUD_ML_PROJECT_ID": self.project,
            "CLOUD_ML_REGION": self.job.plan.region,
        }


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _snake_keys(value: object) -> object:
    if isinstance(value, dict):
        return {_snake(key): _snake_keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_snake_keys(each) for each in value]
    return value
