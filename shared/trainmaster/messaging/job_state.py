"""Notifications of transitions of jobs, in the topic `trainmaster-job-state`.

docs/notifications.md describes them. A message is a function of the job and of an entry of its
ledger, the record of its events and decisions. A repetition therefore has the same `id` and
content. Only the labels are those of the time of publication, because users may change them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field

from trainmaster.core.actions import (
    AcceptJob,
    Action,
    BeginPreparing,
    BeginRunning,
    CancelJob,
    CompleteTuning,
    FailJob,
    RerunJob,
    SucceedJob,
)
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, JobState
from trainmaster.messaging.decoding import MessageModel

INT32_MAX: Final = 2**31 - 1
LABEL_PREFIX: Final = "label_"
"""Prefix of the attributes with the job's labels.

A job has at most 64 labels, a message at most 100 attributes.
"""


class JobKind(StrEnum):
    """Kind of a job."""

    JOB = "job"  # has replicas, and is not a trial
    TUNING = "tuning"  # searches hyperparameters
    TRIAL = "trial"  # runs one assignment of hyperparameters for a tuning job


class Transition(StrEnum):
    """A transition of a job: to its next state, or to its next attempt in the same state."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    RERUN = "rerun"  # the next attempt of the whole job began; the state stays as it is
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_TRANSITIONS: Final[Mapping[type[Action], Transition]] = {
    AcceptJob: Transition.QUEUED,
    BeginPreparing: Transition.PREPARING,
    BeginRunning: Transition.RUNNING,
    RerunJob: Transition.RERUN,
    SucceedJob: Transition.SUCCEEDED,
    CompleteTuning: Transition.SUCCEEDED,
    FailJob: Transition.FAILED,
    CancelJob: Transition.CANCELLED,
}


class LabelField(MessageModel):
    key: str
    value: str


class JobStateMessage(MessageModel):
    """A transition of a job. New optional fields do not change `version`."""

    version: Literal[1]
    id: str = Field(
        description="The same in every repetition of this message, and in no other message."
    )
    job_id: str
    kind: JobKind
    transition: Transition
    state: JobState = Field(description="State of the job after the transition.")
    attempt: int = Field(ge=1, le=INT32_MAX, description="Attempt of the whole job, from 1.")
    at: datetime = Field(description="When the transition was decided.")
    reason: str = Field(description="One word for the cause, such as `primary_succeeded`.")
    text: str = Field(description="The decision in one sentence, as `trainmaster why` shows it.")
    error_message: str | None = Field(
        None, description="The job's errorMessage, if it failed or was cancelled."
    )
    tuning_job: str | None = Field(None, description="For a trial: the id of its tuning job.")
    trial: int | None = Field(
        None, ge=1, le=INT32_MAX, description="For a trial: its number, from 1."
    )
    labels: tuple[LabelField, ...] = Field(
        (), description="The job's labels when the message was published."
    )


def job_state_message(entry: LedgerEntry, job: Job) -> JobStateMessage:
    """Return the message about an entry with the effect NOTIFY.

    `job` is the job before or at any time after the transition.

    Raises ValueError if the entry's action is not a transition of a job.
    """
    if entry.job_state is None:
        raise ValueError(f"{entry.key}: the entry is about no job")
    action = entry.decision.action
    transition = _transition(action)
    trial = job.trial_of
    return JobStateMessage(
        version=1,
        id=f"{entry.job_id}/{entry.key}",
        job_id=entry.job_id,
        kind=_kind(job),
        transition=transition,
        state=entry.job_state,
        attempt=action.job.attempt if isinstance(action, AcceptJob) else entry.after.attempt,
        at=entry.at,
        reason=entry.decision.reason.value,
        text=entry.decision.text,
        error_message=action.message if isinstance(action, FailJob | CancelJob) else None,
        tuning_job=trial.job_id if trial else None,
        trial=trial.number if trial else None,
        labels=tuple(LabelField(key=label.key, value=label.value) for label in job.labels),
    )


def encode_job_state(message: JobStateMessage) -> bytes:
    """Return the message's data. Fields without a value are left out."""
    return message.model_dump_json(exclude_none=True).encode()


def job_state_attributes(message: JobStateMessage) -> dict[str, str]:
    """Return the message's attributes, which filters of subscriptions can use."""
    return {
        "job_id": message.job_id,
        "kind": message.kind.value,
        "transition": message.transition.value,
        "state": message.state.value,
        "attempt": str(message.attempt),
        **{f"{LABEL_PREFIX}{label.key}": label.value for label in message.labels},
    }


def _kind(job: Job) -> JobKind:
    if job.tuning is not None:
        return JobKind.TUNING
    return JobKind.TRIAL if job.trial_of is not None else JobKind.JOB


def _transition(action: Action) -> Transition:
    transition = _TRANSITIONS.get(type(action))
    if transition is None:
        raise ValueError(f"{action.kind} is not a transition of a job")
    return transition
