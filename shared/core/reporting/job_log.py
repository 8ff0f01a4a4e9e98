"""A job's log as the service wrote it: what replicas are called in it, and the service's own lines.

The lines are a function of the ledger: the same entry always makes the same lines, at the same times, so that writing
them again changes nothing. Source of the words: replica and service logs of real jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from shared.core.cluster.tf_config import POOLS
from shared.core.decisions import (
    AcceptJob,
    BeginPreparing,
    BeginRunning,
    CancelJob,
    CompleteStudy,
    ContinueProvisioning,
    Decision,
    FailJob,
    HoldReplica,
    Ignore,
    Reason,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    SucceedJob,
)
from shared.core.ledger import LedgerEntry
from shared.core.model.job import public_id
from shared.core.model.plan import Dialect
from shared.core.model.replica_id import TaskType
from shared.core.model.tuning import number_of

SERVICE: Final = "service"
"""The task name of the service's own lines."""
LOG_ID: Final = "trainmaster"

REPLICAS: Final = {
    TaskType.CHIEF: "master-replica",  # the service logged a chief as the master, too
    TaskType.MASTER: "master-replica",
    TaskType.WORKER: "worker-replica",
    TaskType.PS: "ps-replica",
    TaskType.EVALUATOR: "evaluator-replica",
}

TROUBLES: Final = (Reason.TRIAL_FAILED, Reason.TRIAL_CANCELLED, Reason.TRIAL_WITHOUT_METRIC)

TEARING_DOWN: Final = "Tearing down training program."

STEP: Final = timedelta(microseconds=1)
"""Between the lines of one entry."""


class Severity(StrEnum):
    """As Cloud Logging has them, as far as the service uses them."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """`key` and `at` identify it within its job, or its trial's: `job_id` is what is stored, not what the log says."""

    job_id: str
    key: str
    at: datetime
    severity: Severity
    message: str


def task_base(task_type: TaskType, dialect: Dialect) -> str:
    """A replica's task name without its index: `worker-replica`, or `workerpool1` for a job of Vertex AI's format."""
    return POOLS[task_type] if dialect is Dialect.VERTEX else REPLICAS[task_type]


def lines_of(entry: LedgerEntry) -> tuple[ServiceLine, ...]:
    """What the service says when this is decided; nothing for what is ignored, but that it waits."""
    return tuple(
        ServiceLine(entry.job_id, f"{SERVICE}-{entry.key}-{nth}", entry.at + nth * STEP, severity, message)
        for nth, (severity, message) in enumerate(_said(entry.job_id, entry.decision))
    )


def _said(job_id: str, decision: Decision) -> Iterator[tuple[Severity, str]]:
    match decision:
        case Ignore(reason=Reason.QUEUED):
            yield from _info(decision.text)
        case Ignore():
            pass
        case AcceptJob():
            yield from _info(
                "Validating job requirements...",
                "Job creation request has been successfully validated.",
                f"Job {_named(job_id)} is queued.",
                "Waiting for job to be provisioned.",
            )
        case BeginPreparing():
            yield from _info("Waiting for training program to start.")
        case BeginRunning():
            yield from _info("Job is running.")
        case SucceedJob() | CompleteStudy():
            yield from _info(decision.text, TEARING_DOWN, "Job completed successfully.")
        case FailJob():
            yield Severity.ERROR, decision.message
            yield from _info(TEARING_DOWN)
            yield Severity.ERROR, "Job failed."
        case CancelJob():
            yield from _info(decision.message, TEARING_DOWN, "Job cancelled.")
        case RestartReplica() | RerunJob() | ReplaceVm() | HoldReplica() | ContinueProvisioning():
            yield Severity.WARNING, decision.text
        case _:
            yield (Severity.WARNING if decision.reason in TROUBLES else Severity.INFO), decision.text


def _named(job_id: str) -> str:
    return public_id(job_id) if number_of(job_id) else job_id


def _info(*messages: str) -> Iterator[tuple[Severity, str]]:
    return ((Severity.INFO, message) for message in messages)
