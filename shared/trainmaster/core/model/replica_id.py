"""Replica ids: positions in a job, independent of the VM and of the execution of the program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TaskType(StrEnum):
    """Role of a replica. Source: TF_CONFIG's `task.type`."""

    CHIEF = "chief"
    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


PRIMARY_TYPES: Final = (TaskType.CHIEF, TaskType.MASTER)
"""Roles whose replica is the primary of its job."""


@dataclass(frozen=True, slots=True, order=True)
class ReplicaId:
    """Task type and index of a replica. It stays the same for all its VMs and executions."""

    task_type: TaskType
    index: int
    """Index within the task type, from 0."""

    def __str__(self) -> str:
        return f"{self.task_type}-{self.index}"

    @property
    def is_in_cluster(self) -> bool:
        """Whether the replica is a member of the cluster.

        An evaluator is not: it reads checkpoints, does not wait for other replicas, and they do not
        wait for it.
        """
        return self.task_type is not TaskType.EVALUATOR

    @property
    def words(self) -> str:
        """The replica as AI Platform Training writes it in messages: `worker 1`."""
        return f"{self.task_type} {self.index}"

    @classmethod
    def parse(cls, text: str) -> ReplicaId:
        """Return the replica id that `str` wrote as `worker-1`.

        Raises ValueError for any other text.
        """
        task_type, _, index = text.rpartition("-")
        return cls(TaskType(task_type), int(index))
