"""Messages from the agents on the VMs: vm-ready, replica-exit, maintenance.

    message ──► `decode_…` ──► model: checked field by field ──► event, which the rules judge

The flow of each topic calls its `decode_…`. An incarnation is one execution of a replica's program;
a *notice* announces that its VM will stop, and the VM is *given up* when its loss is reported.

The training program has written parts of a message, so they are cut to their limits or left out,
and never make it fail: its exit must be judged in any case. docs/interfaces.md, section 2, explains
the fields. The topics have schemas (infra/schemas), which a test compares with these models.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from trainmaster.core.events import (
    ExitCause,
    IncarnationRef,
    ProgramError,
    ReplicaExited,
    VmLost,
    VmNoticed,
    VmReady,
    VmRef,
)
from trainmaster.core.model.last_progress import LastMetric, LastProgress
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.tuning import Measurement, Point
from trainmaster.core.model.vm import LossCause
from trainmaster.messaging.decoding import MessageModel, decode_json

TAIL_LENGTH_MAX: Final = 4096
"""Characters of the end of the program's output."""
STDERR_LINE_LENGTH_MAX: Final = 256
LOG_PROBLEM_LENGTH_MAX: Final = 200
LINES_MAX: Final = 2**53
"""More lines than any program prints, and exact in JSON."""
STEP_MAX: Final = 2**53
"""Largest training step of a metric, as in the agent.

Firestore stores integers of at most 64 bits.
"""
EARLIER_MAX: Final = 49
"""Measurements before the last one that an exit may carry, as in the agent.

More are cut off at the beginning.
"""

INT32_MAX: Final = 2**31 - 1
"""Largest integer of the topics' schemas.

It is checked here too, because an installation need not have the schemas.
"""
NAME_LENGTH_MAX: Final = 256
"""More than any name or id of a VM. Firestore's document ids, which contain ids of VMs, have at
most 1,500 bytes.
"""
ERROR_LENGTH_MAX: Final = 4096
CAUSES_MAX: Final = 10
MEMBERS_MAX: Final = 10_000
"""Members (replicas that train together) that a notice names, at most."""
SAVES_MAX: Final = 1_000_000
"""Requests to save in one round, a common start of all members, at most."""
UNFIT_ERROR: Final = "UnfitMachine"
"""Type of the error of an exit whose cause is `unfit`.

Agents send it as `setup`.
"""
NOTICE: Final = "notice"
"""Cause of a maintenance message about a VM that is not lost yet."""
NOTICE_MAX: Final = timedelta(hours=1)
"""Longest time from a notice until its VM is given up."""
METRICS_MAX: Final = 8
"""Metrics of the last progress, as in the agent. More are cut off at the end."""
METRIC_NAME_LENGTH_MAX: Final = 100
RAN_S_MAX: Final = 315_360_000.0
"""Ten years. Rules subtract a duration from a time. Because both are bounded, the result is always
a valid datetime.
"""


def _not_after_publication(time: datetime, info: ValidationInfo) -> datetime:
    """Cut a time in the future to the time of publication: the clock of a VM may be fast."""
    published_at = info.context
    return time if published_at is None else min(time, published_at)


def _loss_or_notice(cause: str) -> str:
    """Return the cause. Raises ValueError if it is neither a loss nor a notice."""
    return cause if cause == NOTICE else LossCause(cause).value


def _printable(name: str) -> str:
    """Return the name of a metric. Raises ValueError if it cannot be printed."""
    if not name.isprintable():
        raise ValueError("the name of a metric must be printable")
    return name


Count = Annotated[int, Field(ge=1, le=INT32_MAX)]
Index = Annotated[int, Field(ge=0, le=INT32_MAX)]
Status = Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)]
Time = Annotated[
    AwareDatetime,
    Field(strict=False, ge=datetime(1980, 1, 1, tzinfo=UTC), le=datetime(2200, 1, 1, tzinfo=UTC)),
    AfterValidator(_not_after_publication),
]
"""The clock of a VM may start in 1980. A time after that of publication is cut to it. The bounds
leave a margin for the rules' calculations: Python's datetime ends with the years 1 and 9999.
"""
Name = Annotated[str, Field(max_length=NAME_LENGTH_MAX)]
InstanceId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,256}$")]


def _keep(part: slice) -> BeforeValidator:
    """Cut a list before its items are validated: the program chose their number."""
    return BeforeValidator(lambda value: value[part] if isinstance(value, list) else value)


class VmModel(MessageModel):
    """The VM that the agent runs on."""

    name: Name
    zone: Name
    instance_id: InstanceId


class AgentMessage(MessageModel):
    """The fields of every message of an agent: which incarnation sent it, from where, and when."""

    version: Literal[1]
    job_id: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}(-trial-[1-9][0-9]{0,3})?$")]
    attempt: Count
    task_type: Annotated[TaskType, Field(strict=False)]
    task_index: Index
    incarnation: Count
    vm_generation: Count
    """Number of this VM among those of the replica: it grows each time another one is requested."""
    host: Index | None = None
    """Host of a TPU slice; None: a VM."""
    vm: VmModel
    at: Time
    """When it happened, by the VM's clock."""

    def subject(self) -> IncarnationRef:
        """Return the incarnation that the message is about."""
        return IncarnationRef(
            job_id=self.job_id,
            attempt=self.attempt,
            replica_id=ReplicaId(self.task_type, self.task_index),
            incarnation=self.incarnation,
            vm_generation=self.vm_generation,
            vm=VmRef(self.vm.name, self.vm.zone, self.vm.instance_id),
            host=self.host,
        )


class ErrorModel(MessageModel):
    """The last Python traceback in the program's output."""

    type: str
    message: str
    frame: str
    """Innermost frame."""
    own_frame: str = ""
    """Innermost frame in the job's own code."""
    causes: Annotated[
        tuple[str, ...], Field(strict=False, max_length=CAUSES_MAX), _keep(slice(CAUSES_MAX))
    ] = ()


class PointModel(MessageModel):
    """One earlier measurement of a trial.

    The value is optional, because Pub/Sub accepts no further required field in a schema that is
    in use.
    """

    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    step: Annotated[int, Field(strict=False, ge=0, le=STEP_MAX)] = 0


class MetricModel(MessageModel):
    """The last measurement of a trial's metric, and those before it."""

    value: Annotated[float, Field(allow_inf_nan=False)]
    step: Annotated[int, Field(strict=False, ge=0, le=STEP_MAX)] = 0
    earlier: Annotated[
        tuple[PointModel, ...],
        Field(strict=False, max_length=EARLIER_MAX),
        _keep(slice(-EARLIER_MAX, None)),
    ] = ()

    def measurement(self) -> Measurement:
        """Return the last measurement with the latest of those before it."""
        earlier = tuple(
            Point(point.value, point.step) for point in self.earlier if point.value is not None
        )
        return Measurement(self.value, self.step, earlier)


Step = Annotated[int, Field(strict=False, ge=0, le=STEP_MAX)]
MetricName = Annotated[
    str, Field(min_length=1, max_length=METRIC_NAME_LENGTH_MAX), AfterValidator(_printable)
]


class NamedValueModel(MessageModel):
    """A metric that the program printed. Both fields are optional, as in `PointModel`."""

    name: MetricName | None = None
    value: Annotated[float, Field(allow_inf_nan=False)] | None = None


class ProgressModel(MessageModel):
    """The progress of the program, as its output shows it."""

    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Part of the training that is done."""
    step: Step | None = None
    steps: Step | None = None
    epoch: Step | None = None
    epochs: Step | None = None
    metrics: Annotated[
        tuple[NamedValueModel, ...],
        Field(strict=False, max_length=METRICS_MAX),
        _keep(slice(METRICS_MAX)),
    ] = ()
    """Last value of each."""
    not_finite: Annotated[
        tuple[MetricName, ...],
        Field(strict=False, max_length=METRICS_MAX),
        _keep(slice(METRICS_MAX)),
    ] = ()

    def last_progress(self) -> LastProgress:
        metrics = tuple(
            LastMetric(metric.name, metric.value)
            for metric in self.metrics
            if metric.name is not None and metric.value is not None
        )
        return LastProgress(
            share=self.share,
            step=self.step,
            steps=self.steps,
            epoch=self.epoch,
            epochs=self.epochs,
            metrics=metrics,
            not_finite=self.not_finite,
        )


class ExitModel(MessageModel):
    """The end of an incarnation, one execution of a replica's program.

    `ReplicaExited` explains the fields.
    """

    cause: Annotated[ExitCause, Field(strict=False)]
    exit_status: Status | None = None
    signal: Status | None = None
    out_of_memory: bool = False
    error: ErrorModel | None = None
    tail: str = ""
    ran_s: Annotated[float, Field(strict=False, ge=0, le=RAN_S_MAX)] | None = None
    metric: MetricModel | None = None
    stderr_line: str = ""
    progress: ProgressModel | None = None
    left_nothing: bool = False
    unlogged_lines: Annotated[int, Field(strict=False, ge=0, le=LINES_MAX)] = 0
    log_problem: str = ""

    @field_validator("metric", "progress", mode="wrap")
    @classmethod
    def _ignore_invalid(cls, value: object, validate: ValidatorFunctionWrapHandler) -> object:
        """Drop an invalid metric or progress: the program wrote it, and its exit must be judged in
        any case.
        """
        try:
            return validate(value)
        except ValidationError:
            return None

    @model_validator(mode="after")
    def _require_one_end(self) -> Self:
        if self.cause is ExitCause.PROCESS and (self.exit_status is None) == (self.signal is None):
            raise ValueError(
                "exactly one of exit_status and signal must be given for cause process"
            )
        return self

    def exit_of(self, subject: IncarnationRef, at: datetime) -> ReplicaExited:
        """Return the event of this end.

        `subject`: the incarnation that ended, at the time `at`. Texts are cut to their limits,
        because the program chose them.
        """
        cause = self.cause
        if cause is ExitCause.SETUP and self.error and self.error.type == UNFIT_ERROR:
            cause = ExitCause.UNFIT
        return ReplicaExited(
            subject,
            at,
            cause=cause,
            exit_status=self.exit_status,
            signal=self.signal,
            out_of_memory=self.out_of_memory,
            error=_program_error(self.error) if self.error else None,
            tail=self.tail[-TAIL_LENGTH_MAX:],
            measurement=self.metric.measurement() if self.metric else None,
            ran_s=self.ran_s,
            stderr_line=_in_one_line(self.stderr_line)[:STDERR_LINE_LENGTH_MAX],
            progress=self.progress.last_progress() if self.progress else None,
            left_nothing=self.left_nothing,
            unlogged_lines=self.unlogged_lines,
            log_problem=_in_one_line(self.log_problem)[:LOG_PROBLEM_LENGTH_MAX],
        )


class EndedModel(ExitModel):
    """The end of the program that ran on this VM before the one that the message is about."""

    attempt: Count
    incarnation: Count
    at: Time


class NextIncarnationMessage(AgentMessage):
    """An agent has set up the VM for an incarnation, or could not, after an earlier one."""

    ended: EndedModel | None = None

    @model_validator(mode="after")
    def _require_earlier_incarnation(self) -> Self:
        if self.ended is not None:
            ended = (self.ended.attempt, self.ended.incarnation)
            if ended >= (self.attempt, self.incarnation):
                raise ValueError("ended must be an earlier incarnation than that of the message")
        return self

    def previous_exit(self) -> ReplicaExited | None:
        """Return the event of the earlier incarnation's end; None: the message has none."""
        if self.ended is None:
            return None
        ended = self.ended
        subject = replace(self.subject(), attempt=ended.attempt, incarnation=ended.incarnation)
        return ended.exit_of(subject, ended.at)


class ReplicaExitMessage(ExitModel, NextIncarnationMessage):
    """A program ended, or could not be started."""


class VmReadyMessage(NextIncarnationMessage):
    """An agent is about to start a program, or waits for the order to start it."""

    agent_started_at: Time | None = None
    finding: str = ""
    """Fault of the machine that the preflight found, if the job only wants it reported."""
    left_peers: bool = False
    """Whether an order to the agent ended the earlier program, which had done its work and waited
    for that of other machines.
    """


class MaintenanceMessage(AgentMessage):
    """A VM is lost, or its end is announced and all programs of the job were asked to save."""

    cause: Annotated[str, AfterValidator(_loss_or_notice)]
    gives_up_at: Annotated[AwareDatetime, Field(strict=False)] | None = None
    """Latest time at which the agent will report the loss that a notice announces."""
    save_number: Annotated[int, Field(ge=1, le=SAVES_MAX)] = 1
    """Number of the request to save that belongs to a notice, since the programs started together.
    """
    unanswered: Annotated[
        tuple[Index, ...], Field(strict=False, max_length=MEMBERS_MAX), _keep(slice(MEMBERS_MAX))
    ] = ()
    """Numbers of the replicas that did not confirm the request to save."""


def decode_subject(data: bytes) -> IncarnationRef:
    """Return who reports an event, without decoding the rest of the message, which is authenticated
    first.

    Raises PermanentError if the message is malformed.
    """
    return decode_json(AgentMessage, data).subject()


def decode_vm_ready(data: bytes, published_at: datetime | None = None) -> VmReady:
    """Return the event.

    Times after `published_at` are cut to it. Raises PermanentError if the message is malformed.
    """
    message = decode_json(VmReadyMessage, data, published_at)
    return VmReady(
        message.subject(),
        message.at,
        agent_started_at=message.agent_started_at,
        finding=_in_one_line(message.finding),
        ended=message.previous_exit(),
        left_peers=message.left_peers,
    )


def decode_replica_exit(data: bytes, published_at: datetime | None = None) -> ReplicaExited:
    """Return the event.

    Times after `published_at` are cut to it. Raises PermanentError if the message is malformed.
    """
    message = decode_json(ReplicaExitMessage, data, published_at)
    exited = message.exit_of(message.subject(), message.at)
    return replace(exited, ended=message.previous_exit())


def decode_vm_end(data: bytes, published_at: datetime | None = None) -> VmLost | VmNoticed:
    """Return the event of a maintenance message. Times after `published_at` are cut to it.

    Raises PermanentError if the message is malformed.
    """
    message = decode_json(MaintenanceMessage, data, published_at)
    subject = message.subject()
    at = message.at
    if message.cause == NOTICE:
        gives_up_at = min(message.gives_up_at or at, at + NOTICE_MAX)
        return VmNoticed(subject, at, gives_up_at, message.save_number, message.unanswered)
    return VmLost(subject, at, LossCause(message.cause))


def _program_error(error: ErrorModel) -> ProgramError:
    """Return the error, with its texts cut, and names in one line: the program chose them."""
    return ProgramError(
        _in_one_line(error.type),
        error.message[:ERROR_LENGTH_MAX],
        _in_one_line(error.frame),
        _in_one_line(error.own_frame),
        tuple(cause[:ERROR_LENGTH_MAX] for cause in error.causes),
    )


def _in_one_line(text: str) -> str:
    return " ".join(text[:ERROR_LENGTH_MAX].split())
