"""A job's log, as AI Platform Training (the service) wrote it: names of replicas, and lines of the
service itself, which Trainmaster writes in its place.

The lines are a function of the ledger entry, times included. Writing them again changes nothing.
Source of the words: replica and service logs of real jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from trainmaster.core.actions import (
    AcceptJob,
    Action,
    BeginPreparing,
    BeginRound,
    BeginRunning,
    CancelJob,
    CompleteTuning,
    ContinueProvisioning,
    FailJob,
    Ignore,
    MarkReady,
    RecordMeasurements,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    StopRound,
    SucceedJob,
)
from trainmaster.core.cluster.tf_config import POOLS
from trainmaster.core.decisions import Decision, Reason
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.failure_row import SHOWN_FROM
from trainmaster.core.model.job import Job, public_id
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.rules.failure_row import ending_words, failing_words

SERVICE: Final = "service"
"""Task name of Trainmaster's own lines."""

REPLICAS: Final = {
    TaskType.CHIEF: "master-replica",  # the service logged a chief as the master, too
    TaskType.MASTER: "master-replica",
    TaskType.WORKER: "worker-replica",
    TaskType.PS: "ps-replica",
    TaskType.EVALUATOR: "evaluator-replica",
}
"""Task names of replicas, without the index."""

WARNING_REASONS: Final = (
    Reason.TRIAL_FAILED,
    Reason.TRIAL_CANCELLED,
    Reason.TRIAL_WITHOUT_METRIC,
    Reason.TRIAL_UNPROMISING,
)

TEARING_DOWN: Final = "Tearing down training program."

LINE_INTERVAL: Final = timedelta(microseconds=1)
"""Time between the lines of one entry, which keeps their order."""


class Severity(StrEnum):
    """The severities of Cloud Logging that the service used."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """A line of Trainmaster itself in a job's log. `key` and `at` identify it within its job."""

    job_id: str
    """The stored job id, of a trial its own; the log shows the public id."""
    key: str
    at: datetime
    severity: Severity
    message: str


def task_base(task_type: TaskType, dialect: Dialect) -> str:
    """Return a replica's task name without the index: `worker-replica`, or `workerpool1` in Vertex
    AI's format.
    """
    return POOLS[task_type] if dialect is Dialect.VERTEX else REPLICAS[task_type]


def task_name(replica_id: ReplicaId, dialect: Dialect) -> str:
    """Return the name of a replica in the labels of its log lines: `worker-replica-1`."""
    return f"{task_base(replica_id.task_type, dialect)}-{replica_id.index}"


def replica_named(name: str, plan: Plan) -> ReplicaId | None:
    """Return the replica of the plan that has this name: its id (`worker-1`), its name in messages
    (`worker 1`) or in its log (`worker-replica-1`); None: there is none.
    """
    dialect = plan.origin.dialect
    for replica_id in plan.replica_ids:
        if name in (str(replica_id), replica_id.words, task_name(replica_id, dialect)):
            return replica_id
    return None


def service_lines(entry: LedgerEntry) -> tuple[ServiceLine, ...]:
    """Return the lines that announce the entry's decision; none for what was ignored."""
    return tuple(
        ServiceLine(
            entry.job_id,
            f"{SERVICE}-{entry.key}-{number}",
            entry.at + number * LINE_INTERVAL,
            severity,
            message,
        )
        for number, (severity, message) in enumerate(
            () if _is_repeated(entry.decision) else _messages(entry.decision)
        )
    )


def _is_repeated(decision: Decision) -> bool:
    """Whether the decision is one of those of all members in each later round."""
    return isinstance(decision.action, MarkReady) and (decision.action.round or 1) > 1


def _messages(decision: Decision) -> Iterator[tuple[Severity, str]]:
    """Yield severity and text of each line about the decision."""
    match decision.action:
        case Ignore() if decision.reason in (Reason.QUEUED, Reason.OUT_OF_REACH):
            yield from _info(decision.text)
        case Ignore() | RecordMeasurements():
            return  # measurements are in the program's own output
        case AcceptJob(job=job):
            yield from _acceptance_lines(job)
        case BeginPreparing():
            yield from _info("Waiting for training program to start.")
        case BeginRunning():
            yield from _info("Job is running.")
        case SucceedJob() | CompleteTuning():
            yield from _info(decision.text, TEARING_DOWN, "Job completed successfully.")
        case FailJob(message=message):
            yield Severity.ERROR, message
            yield from _info(TEARING_DOWN)
            yield Severity.ERROR, "Job failed."
        case CancelJob(message=message):
            yield from _info(message, TEARING_DOWN, "Job cancelled.")
        case (
            RestartReplica()
            | RerunJob()
            | ReplaceVm()
            | StopRound()
            | BeginRound()
            | ContinueProvisioning()
        ):
            yield Severity.WARNING, decision.text
            yield from _failing_lines(decision.action)
        case _:
            is_warning = decision.reason in WARNING_REASONS
            yield (Severity.WARNING if is_warning else Severity.INFO), decision.text


def _failing_lines(action: Action) -> Iterator[tuple[Severity, str]]:
    """Yield that the job keeps failing, once: each later failure has its decision."""
    if not isinstance(action, RestartReplica | RerunJob | BeginRound):
        return
    row = action.failing
    if row is not None and row.failures == SHOWN_FROM:
        yield Severity.WARNING, f"The job is {failing_words(row)}. {ending_words(row)}"


def _acceptance_lines(job: Job) -> Iterator[tuple[Severity, str]]:
    """Yield the lines of a new job. Each of its substitutions is a warning."""
    yield from _info(
        "Validating job requirements...", "Job creation request has been successfully validated."
    )
    for note in job.plan.origin.substitutions:
        yield Severity.WARNING, note.text
    name = public_id(job.job_id) if trial_number(job.job_id) else job.job_id
    yield from _info(f"Job {name} is queued.", "Waiting for job to be provisioned.")


def _info(*messages: str) -> Iterator[tuple[Severity, str]]:
    return ((Severity.INFO, message) for message in messages)
