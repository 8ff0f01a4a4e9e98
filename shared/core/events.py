"""What happened: facts, in the past tense, already decoded and checked for shape.

An event's `key` is made of what it says, never of the message that carried it, so the same fact told twice is one
event. It names the ledger entry, whose creation fails the second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from shared.core.model.job import Job, Label
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import Measurement, TrialState
from shared.core.model.vm import LossCause


@dataclass(frozen=True, slots=True)
class VmRef:
    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class IncarnationRef:
    """Whose event it is: one incarnation of one replica, on one machine. `host`: which of a slice's; None for a VM."""

    job_id: str
    attempt: int
    replica_id: ReplicaId
    incarnation: int
    vm_generation: int
    vm: VmRef
    host: int | None = None

    @property
    def key(self) -> str:
        return f"{self.attempt}-{self.replica_id}-{self.incarnation}"

    @property
    def host_key(self) -> str:
        """Of what every host of a slice says for itself."""
        return "" if self.host is None else f"-host-{self.host}"


class ExitCause(StrEnum):
    """What the agent saw end."""

    PROCESS = "process"  # the program ended by itself or by a signal
    INSTALL = "install"  # a package cannot be had or installed, for good
    SETUP = "setup"  # the agent could not set up, for a transient reason
    VM_STOPPING = "vm_stopping"  # the VM was shutting down under the program, whatever status that made of it
    VM_RESTARTED = "vm_restarted"  # the VM rebooted, or the agent died, under the program


@dataclass(frozen=True, slots=True)
class ProgramError:
    """The last Python traceback of the program's output; `frame` is `file:line in function`, the innermost."""

    type: str
    message: str
    frame: str

    @property
    def signature(self) -> str:
        return f"{self.type} at {self.frame}"


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """`job` is complete, as it will be stored if no job of that id exists. `exhausted`: those of its zones that come
    last for want of capacity."""

    job: Job
    at: datetime
    exhausted: tuple[str, ...] = ()
    kind: Literal["job_submitted"] = "job_submitted"

    @property
    def key(self) -> str:
        return "submitted"


@dataclass(frozen=True, slots=True)
class ProvisioningStarted:
    job_id: str
    at: datetime
    kind: Literal["provisioning_started"] = "provisioning_started"

    @property
    def key(self) -> str:
        return "preparing"


@dataclass(frozen=True, slots=True)
class VmReady:
    """The agent is about to start this incarnation's program."""

    subject: IncarnationRef
    at: datetime
    kind: Literal["vm_ready"] = "vm_ready"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-ready{self.subject.host_key}"


@dataclass(frozen=True, slots=True)
class AllReady:
    """Every replica of the attempt has been ready at least once (counted after the last one's own write)."""

    job_id: str
    attempt: int
    at: datetime
    kind: Literal["all_ready"] = "all_ready"

    @property
    def key(self) -> str:
        return f"{self.attempt}-all-ready"


@dataclass(frozen=True, slots=True)
class ReplicaExited:
    """Exactly one of `exit_status` and `signal` for a program; both may be absent for the other causes.

    A slice fails once, whichever of its hosts is the first; each host succeeds for itself. `measurement`: what a
    trial's program reported last.
    """

    subject: IncarnationRef
    at: datetime
    cause: ExitCause = ExitCause.PROCESS
    exit_status: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    error: ProgramError | None = None
    tail: str = ""
    measurement: Measurement | None = None
    kind: Literal["replica_exited"] = "replica_exited"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-exit{self.subject.host_key if self.succeeded else ''}"

    @property
    def succeeded(self) -> bool:
        return self.cause is ExitCause.PROCESS and self.exit_status == 0

    @property
    def signature(self) -> str | None:
        return self.error.signature if self.error else None


@dataclass(frozen=True, slots=True)
class VmLost:
    """A VM is going (notice) or gone. However many notices one machine gets, it is lost once.

    Silence is of one incarnation, and may be broken before it is judged: it must not stand for the machine's later loss. Nor
    must being left behind, which is of one search: `round` is the placement's.
    """

    subject: IncarnationRef
    at: datetime
    cause: LossCause
    round: int = 0
    kind: Literal["vm_lost"] = "vm_lost"

    @property
    def is_vm_loss(self) -> bool:
        """Whatever incarnation is on it, in whatever attempt: a machine outlives both."""
        return self.cause not in (LossCause.STARTUP_TIMEOUT, LossCause.WRONG_ZONE)

    @property
    def key(self) -> str:
        if self.cause is LossCause.STARTUP_TIMEOUT:
            return f"{self.subject.key}-startup-timeout"
        if self.cause is LossCause.WRONG_ZONE:
            return f"{self.subject.key}-left-{self.round}"
        return f"{self.subject.replica_id}-vm-{self.subject.vm_generation}-lost"


@dataclass(frozen=True, slots=True)
class CompletionOutdated:
    """The primary begins another incarnation, and may wait in it for this replica, which had exited 0."""

    subject: IncarnationRef
    at: datetime
    kind: Literal["completion_outdated"] = "completion_outdated"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-outdated"


class CapacityErrorKind(StrEnum):
    """Why Compute Engine or Cloud TPU did not create VMs."""

    STOCKOUT = "stockout"  # no capacity in the zone: try the next zone
    QUOTA = "quota"  # the project's quota in the region is used up: wait
    DENIED = "denied"  # permission, network or image: trying again cannot help
    INTERNAL = "internal"  # any other error of Google's


@dataclass(frozen=True, slots=True)
class VmsNotCreated:
    """None of the VMs of an insert was created."""

    job_id: str
    attempt: int
    zone: str
    round: int
    """Provisioning round of the placement in which they were requested."""
    error_kind: CapacityErrorKind
    code: str
    """Google's error code."""
    message: str
    """Google's error message."""
    at: datetime
    zones_available: tuple[str, ...] = ()
    """Zones that Google named as having capacity."""
    requested: str = "VMs"
    """What was requested, in words: `2 x n1-standard-8 (worker)`."""
    kind: Literal["vms_not_created"] = "vms_not_created"

    @property
    def key(self) -> str:
        return f"{self.attempt}-not-created-{self.round}-{self.zone}"


@dataclass(frozen=True, slots=True)
class VmsQueued:
    """The job's VMs wait in Cloud TPU's queue."""

    job_id: str
    attempt: int
    zone: str
    round: int
    """Provisioning round of the placement in which they were requested."""
    requested: str
    """What was requested, in words: `1 x v5litepod-16 (worker)`."""
    at: datetime
    kind: Literal["vms_queued"] = "vms_queued"

    @property
    def key(self) -> str:
        return f"{self.attempt}-queued-{self.round}-{self.zone}"


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job_id: str
    by: str
    at: datetime
    kind: Literal["cancel_requested"] = "cancel_requested"

    @property
    def key(self) -> str:
        return "cancel"


@dataclass(frozen=True, slots=True)
class LabelsChanged:
    """All of the job's labels, as they shall be; also of a job that has ended. `change` names the request, so that one
    told twice is one. `seen`: the labels_version that the user looked at; None where that does not matter."""

    job_id: str
    labels: tuple[Label, ...]
    change: str
    at: datetime
    seen: int | None = None
    kind: Literal["labels_changed"] = "labels_changed"

    @property
    def key(self) -> str:
        return f"labels-{self.change}"


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """Only a job that has ended can be deleted; a request that came too early does not stand for a later one."""

    job_id: str
    change: str
    at: datetime
    kind: Literal["delete_requested"] = "delete_requested"

    @property
    def key(self) -> str:
        return f"delete-{self.change}"


class Deadline(StrEnum):
    RUNNING = "running"  # maxRunningTime since RUNNING
    WAIT = "wait"  # maxWaitTime since creation, before RUNNING


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    job_id: str
    deadline: Deadline
    at: datetime
    kind: Literal["deadline_passed"] = "deadline_passed"

    @property
    def key(self) -> str:
        return f"deadline-{self.deadline}"


@dataclass(frozen=True, slots=True)
class TrialSuggested:
    """The values that the next trial of a tuning job may get, in the order of its parameters.

    `ended`: how many trials had, as far as was known then. What was too late for one state of the tuning job may be
    right again for a later one, and is then another event.
    """

    job_id: str
    number: int
    values: tuple[str, ...]
    at: datetime
    ended: int = 0
    kind: Literal["trial_suggested"] = "trial_suggested"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-suggested-{self.ended}"


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A trial's job is running since `started_at`."""

    job_id: str
    number: int
    started_at: datetime
    at: datetime
    kind: Literal["trial_started"] = "trial_started"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-running"


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial's job ended at `ended_at`; `error` is its errorMessage."""

    job_id: str
    number: int
    state: TrialState
    ended_at: datetime
    at: datetime
    measurement: Measurement | None = None
    error: str = ""
    kind: Literal["trial_ended"] = "trial_ended"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-ended"


@dataclass(frozen=True, slots=True)
class StudyOver:
    """No trial of a tuning job is to begin any more, as told by those that have ended, so many of them."""

    job_id: str
    at: datetime
    ended: int = 0
    kind: Literal["study_over"] = "study_over"

    @property
    def key(self) -> str:
        return f"study-over-{self.ended}"


ReplicaEvent = VmReady | ReplicaExited | VmLost | CompletionOutdated
JobEvent = (
    ProvisioningStarted
    | AllReady
    | VmsNotCreated
    | VmsQueued
    | CancelRequested
    | LabelsChanged
    | DeleteRequested
    | DeadlinePassed
)
StudyEvent = TrialSuggested | TrialStarted | TrialEnded | StudyOver
Event = JobSubmitted | ReplicaEvent | JobEvent | StudyEvent
