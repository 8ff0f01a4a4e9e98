"""Positions in a job: what a replica is, whatever machine or incarnation it has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TaskType(StrEnum):
    CHIEF = "chief"
    MASTER = "master"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"


PRIMARY_TYPES: Final = (TaskType.CHIEF, TaskType.MASTER)


@dataclass(frozen=True, slots=True, order=True)
class ReplicaId:
    """A position in the job: what a replica is, whatever machine or incarnation it has."""

    task_type: TaskType
    index: int

    def __str__(self) -> str:
        return f"{self.task_type}-{self.index}"

    @property
    def is_in_cluster(self) -> bool:
        """An evaluator stands beside it: it reads checkpoints, waits for nobody, and nobody waits for it."""
        return self.task_type is not TaskType.EVALUATOR

    @property
    def words(self) -> str:
        """As the service writes it in messages: `worker 1`."""
        return f"{self.task_type} {self.index}"

    @classmethod
    def parse(cls, text: str) -> ReplicaId:
        task_type, _, index = text.rpartition("-")
        return cls(TaskType(task_type), int(index))
