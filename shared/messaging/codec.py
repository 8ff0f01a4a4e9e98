"""Messages between the parts, decoded once at the door: JSON in, events out; pydantic checks the shape.

The shapes are those of docs/interfaces.md section 2. A message that does not fit can never succeed: PermanentError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from shared.core.events import (
    ExitCause,
    IncarnationRef,
    LossCause,
    ProgramError,
    ReplicaExited,
    VmLost,
    VmReady,
    VmRef,
)
from shared.core.intake.job_files import Uploaded
from shared.core.intake.system_events import SystemEvent
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.tuning import Measurement
from shared.errors import PermanentError

TAIL_LENGTH_MAX = 4096
STEP_MAX = 2**53  # as the agent has it; Firestore holds no more than 64 bits

INSTANCE = re.compile(r"projects/[^/]+/zones/(?P<zone>[^/]+)/instances/(?P<name>[^/]+)")

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class OrphanSearch:
    """A provision message that is about no job: look for VMs without a living owner."""


class _Message(BaseModel):
    """Unknown fields are left alone: a newer agent may say more."""

    # Built when first used: each function reads one or two of them.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)


M = TypeVar("M", bound=_Message)


class _Vm(_Message):
    name: str
    zone: str
    instance_id: str


class _AgentMessage(_Message):
    version: Literal[1]
    job_id: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}(-trial-[1-9][0-9]{0,3})?$")]
    attempt: Count
    task_type: Annotated[TaskType, Field(strict=False)]
    task_index: Annotated[int, Field(ge=0)]
    incarnation: Count
    vm_generation: Count
    host: Annotated[int, Field(ge=0)] | None = None
    vm: _Vm
    at: Annotated[AwareDatetime, Field(strict=False)]

    def subject(self) -> IncarnationRef:
        return IncarnationRef(
            job_id=self.job_id,
            attempt=self.attempt,
            replica_id=ReplicaId(self.task_type, self.task_index),
            incarnation=self.incarnation,
            vm_generation=self.vm_generation,
            vm=VmRef(self.vm.name, self.vm.zone, self.vm.instance_id),
            host=self.host,
        )


class _Error(_Message):
    type: str
    message: str
    frame: str


class _Metric(_Message):
    value: Annotated[float, Field(allow_inf_nan=False)]
    step: Annotated[int, Field(strict=False, ge=0, le=STEP_MAX)] = 0


class _ReplicaExit(_AgentMessage):
    cause: Annotated[ExitCause, Field(strict=False)]
    exit_status: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    error: _Error | None = None
    tail: str = ""
    metric: _Metric | None = None

    @field_validator("metric", mode="wrap")
    @classmethod
    def _or_none(cls, value: object, read: ValidatorFunctionWrapHandler) -> object:
        """What a program made of its metric must not keep its exit from being judged."""
        try:
            return read(value)
        except ValidationError:
            return None


class _Maintenance(_AgentMessage):
    cause: Annotated[LossCause, Field(strict=False)]


class _AuditLog(_Message):
    method: str = Field(alias="methodName")
    resource: str = Field(alias="resourceName")


class _Resource(_Message):
    labels: dict[str, str]


class _LogEntry(_Message):
    """Source: LogEntry and AuditLog of the Cloud Logging API, as a log sink publishes them."""

    payload: _AuditLog = Field(alias="protoPayload")
    resource: _Resource
    at: Annotated[AwareDatetime, Field(strict=False, alias="timestamp")]


class _Object(_Message):
    """Source: the object resource of Cloud Storage's JSON API, which a notification in JSON_API_V1 holds."""

    created_at: Annotated[AwareDatetime, Field(strict=False, alias="timeCreated")]


class _Provision(_Message):
    version: Literal[1]
    job_id: str


class _Tune(_Message):
    version: Literal[1]
    job_id: str


class _OrphanSearch(_Message):
    version: Literal[1]
    orphans: Literal[True]


def vm_ready(data: bytes) -> VmReady:
    message = _decode(_AgentMessage, data)
    return VmReady(message.subject(), message.at)


def replica_exit(data: bytes) -> ReplicaExited:
    message = _decode(_ReplicaExit, data)
    if message.cause is ExitCause.PROCESS and (message.exit_status is None) == (message.signal is None):
        raise PermanentError("replica-exit: exactly one of exit_status and signal must be given for cause process")
    said, metric = message.error, message.metric
    error = ProgramError(said.type, said.message, said.frame) if said else None
    return ReplicaExited(
        message.subject(),
        message.at,
        cause=message.cause,
        exit_status=message.exit_status,
        signal=message.signal,
        out_of_memory=message.out_of_memory,
        error=error,
        tail=message.tail[-TAIL_LENGTH_MAX:],
        measurement=Measurement(metric.value, metric.step) if metric else None,
    )


def maintenance(data: bytes) -> VmLost | SystemEvent:
    """An agent's word, or an entry of Compute's system-event audit log, which alone has a `protoPayload`."""
    if _has(data, "protoPayload"):
        return _system_event(data)
    message = _decode(_Maintenance, data)
    return VmLost(message.subject(), message.at, message.cause)


def provision(data: bytes) -> str | OrphanSearch:
    """The job id, or that it is about no job."""
    if _has(data, "orphans"):
        _decode(_OrphanSearch, data)
        return OrphanSearch()
    return _decode(_Provision, data).job_id


def tune(data: bytes) -> str:
    """The tuning job's id."""
    return _decode(_Tune, data).job_id


def uploaded(attributes: Mapping[str, str], data: bytes) -> Uploaded:
    """Source of the attributes: Cloud Storage's Pub/Sub notifications; `data` is the object itself in JSON_API_V1."""
    try:
        bucket, name, generation = attributes["bucketId"], attributes["objectId"], attributes["objectGeneration"]
        number = int(generation)
    except (KeyError, ValueError) as error:
        raise PermanentError(f"not a Cloud Storage notification: {error}") from None
    created_at = _decode(_Object, data).created_at if _has(data, "timeCreated") else None
    return Uploaded(bucket, name, number, created_at)


def encode_provision(job_id: str) -> bytes:
    return json.dumps({"version": 1, "job_id": job_id}).encode()


def encode_tune(job_id: str) -> bytes:
    return json.dumps({"version": 1, "job_id": job_id}).encode()


def encode_orphan_search() -> bytes:
    return json.dumps({"version": 1, "orphans": True}).encode()


def _system_event(data: bytes) -> SystemEvent:
    entry = _decode(_LogEntry, data)
    path = INSTANCE.fullmatch(entry.payload.resource)
    if path is None:
        raise PermanentError(f"system event: {entry.payload.resource} is no VM")
    vm = VmRef(path["name"], path["zone"], entry.resource.labels.get("instance_id", ""))
    return SystemEvent(entry.payload.method, vm, entry.at)


def _has(data: bytes, field: str) -> bool:
    try:
        message: Any = json.loads(data)
    except ValueError:
        return False
    return isinstance(message, dict) and field in message


def _decode(model: type[M], data: bytes) -> M:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'message'}: {each['msg']}" for each in error.errors())
        raise PermanentError(f"{model.__name__.lstrip('_')}: {said}") from None
