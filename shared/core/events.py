"""Events: facts that were reported, in the past tense, already decoded and checked for shape.

Every event has
    job_id    the job it is about
    key       made of what the event states, not of the message that carried it: a fact reported twice has one key
    reads     what must be loaded to judge it

The key names the ledger entry. Creating the entry fails the second time, so that an event is judged once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from shared.core.model.job import Job, Label
from shared.core.model.replica import replica_key
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import Measurement, TrialState
from shared.core.model.vm import LossCause


@dataclass(frozen=True, slots=True)
class Reads:
    """What must be loaded to judge an event, besides the job."""

    replica_id: ReplicaId | None = None
    """The replica that the event is about."""
    attempt: int = 0
    """The replica's attempt."""
    of_present_attempt: bool = False
    """Whether the event concerns the replica's VM, which outlives an attempt: if the job was rerun, the replica of the
    present attempt is loaded instead."""
    lost_peers: bool = False
    """The replicas of the attempt that were ever lost."""
    primary: bool = False
    """The primary replica of the present attempt."""
    whole_attempt: bool = False
    """All replicas of the present attempt."""
    requires_job: bool = True
    """Whether the event is an error if the job does not exist."""

    @property
    def replica_key(self) -> str | None:
        return replica_key(self.attempt, self.replica_id) if self.replica_id else None


class _JobEvent:
    """An event about a job as a whole."""

    __slots__ = ()

    @property
    def reads(self) -> Reads:
        return Reads()


class _ReplicaEvent:
    """An event about one incarnation of one replica."""

    __slots__ = ()
    subject: IncarnationRef

    @property
    def job_id(self) -> str:
        return self.subject.job_id

    @property
    def reads(self) -> Reads:
        return Reads(self.subject.replica_id, self.subject.attempt)


# Events about replicas


@dataclass(frozen=True, slots=True)
class VmRef:
    """A VM, by its name, zone and Google's numeric id."""

    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class IncarnationRef:
    """One incarnation of one replica on one VM: the subject of an event."""

    job_id: str
    attempt: int
    replica_id: ReplicaId
    incarnation: int
    vm_generation: int
    vm: VmRef
    host: int | None = None
    """Host of the TPU slice that reports the event; None for a VM."""

    @property
    def key(self) -> str:
        return f"{self.attempt}-{self.replica_id}-{self.incarnation}"

    @property
    def host_key(self) -> str:
        """Suffix of the keys of events that every host of a slice reports for itself."""
        return "" if self.host is None else f"-host-{self.host}"


class ExitCause(StrEnum):
    """What ended an incarnation, as the agent observed it."""

    PROCESS = "process"  # the program ended by itself or by a signal
    INSTALL = "install"  # a package cannot be downloaded or installed, permanently
    SETUP = "setup"  # the agent could not set up, for a transient reason
    VM_STOPPING = "vm_stopping"  # the VM was shutting down under the program, whatever the exit status
    VM_RESTARTED = "vm_restarted"  # the VM rebooted, or the agent died, under the program


@dataclass(frozen=True, slots=True)
class ProgramError:
    """The last Python traceback in the program's output."""

    type: str
    """Type of the exception, as printed."""
    message: str
    frame: str
    """Innermost frame: `file:line in function`."""

    @property
    def signature(self) -> str:
        return f"{self.type} at {self.frame}"


@dataclass(frozen=True, slots=True)
class VmReady(_ReplicaEvent):
    """The agent is about to start this incarnation's program."""

    subject: IncarnationRef
    at: datetime
    kind: Literal["vm_ready"] = "vm_ready"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-ready{self.subject.host_key}"


@dataclass(frozen=True, slots=True)
class ReplicaExited(_ReplicaEvent):
    """An incarnation ended.

    A program has either an exit status or a signal; other causes may have neither. The first host of a slice that fails
    is the exit of the slice; exits 0 are reported by each host for itself.
    """

    subject: IncarnationRef
    at: datetime
    cause: ExitCause = ExitCause.PROCESS
    exit_status: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    """Whether the kernel ended the program because memory ran out."""
    error: ProgramError | None = None
    tail: str = ""
    """End of the program's output."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
    kind: Literal["replica_exited"] = "replica_exited"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-exit{self.subject.host_key if self.succeeded else ''}"

    @property
    def reads(self) -> Reads:
        return Reads(self.subject.replica_id, self.subject.attempt, lost_peers=not self.succeeded)

    @property
    def succeeded(self) -> bool:
        return self.cause is ExitCause.PROCESS and self.exit_status == 0

    @property
    def signature(self) -> str | None:
        return self.error.signature if self.error else None


@dataclass(frozen=True, slots=True)
class VmLost(_ReplicaEvent):
    """A VM is about to go, or is gone. One VM is lost once, however often that is reported.

    A startup timeout is about one incarnation, and a wrong zone about one provisioning round: neither may use up the
    key of the VM's later loss.
    """

    subject: IncarnationRef
    at: datetime
    cause: LossCause
    round: int = 0
    """Provisioning round of the job's placement."""
    kind: Literal["vm_lost"] = "vm_lost"

    @property
    def is_vm_loss(self) -> bool:
        """Whether the VM itself is lost, whatever incarnation and attempt is on it."""
        return self.cause not in (LossCause.STARTUP_TIMEOUT, LossCause.WRONG_ZONE)

    @property
    def key(self) -> str:
        if self.cause is LossCause.STARTUP_TIMEOUT:
            return f"{self.subject.key}-startup-timeout"
        if self.cause is LossCause.WRONG_ZONE:
            return f"{self.subject.key}-wrong-zone-{self.round}"
        return f"{self.subject.replica_id}-vm-{self.subject.vm_generation}-lost"

    @property
    def reads(self) -> Reads:
        return Reads(self.subject.replica_id, self.subject.attempt, of_present_attempt=True, lost_peers=True)


@dataclass(frozen=True, slots=True)
class CompletionOutdated(_ReplicaEvent):
    """The primary restarted and may wait for this replica, which had completed."""

    subject: IncarnationRef
    at: datetime
    kind: Literal["completion_outdated"] = "completion_outdated"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-outdated"

    @property
    def reads(self) -> Reads:
        return Reads(self.subject.replica_id, self.subject.attempt, primary=True)


# Events about a job


@dataclass(frozen=True, slots=True)
class JobSubmitted(_JobEvent):
    """A valid job was submitted."""

    job: Job
    """The job as it will be stored if no job has its id."""
    at: datetime
    exhausted: tuple[str, ...] = ()
    """Zones of its plan that are tried last because of recent stockouts."""
    kind: Literal["job_submitted"] = "job_submitted"

    @property
    def job_id(self) -> str:
        return self.job.job_id

    @property
    def key(self) -> str:
        return "submitted"

    @property
    def reads(self) -> Reads:
        return Reads(requires_job=False)


@dataclass(frozen=True, slots=True)
class ProvisioningStarted(_JobEvent):
    """The job left the admission queue."""

    job_id: str
    at: datetime
    kind: Literal["provisioning_started"] = "provisioning_started"

    @property
    def key(self) -> str:
        return "preparing"


@dataclass(frozen=True, slots=True)
class AllReady(_JobEvent):
    """Every replica of the attempt has been ready at least once. Of a tuning job: its first trial runs."""

    job_id: str
    attempt: int
    at: datetime
    kind: Literal["all_ready"] = "all_ready"

    @property
    def key(self) -> str:
        return f"{self.attempt}-all-ready"


class CapacityErrorKind(StrEnum):
    """Why Compute Engine or Cloud TPU did not create VMs."""

    STOCKOUT = "stockout"  # no capacity in the zone: try the next zone
    QUOTA = "quota"  # the project's quota in the region is used up: wait
    DENIED = "denied"  # permission, network or image: trying again cannot help
    INTERNAL = "internal"  # any other error of Google's


@dataclass(frozen=True, slots=True)
class VmsNotCreated(_JobEvent):
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

    @property
    def reads(self) -> Reads:
        return Reads(whole_attempt=True)


@dataclass(frozen=True, slots=True)
class VmsQueued(_JobEvent):
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
class CancelRequested(_JobEvent):
    """A user, or the tuning job of a trial, cancelled the job."""

    job_id: str
    by: str
    at: datetime
    kind: Literal["cancel_requested"] = "cancel_requested"

    @property
    def key(self) -> str:
        return "cancel"


@dataclass(frozen=True, slots=True)
class LabelsChanged(_JobEvent):
    """A user replaced all labels of a job, which may have ended."""

    job_id: str
    labels: tuple[Label, ...]
    change: str
    """Identifies the request, so that a repeated request is one event."""
    at: datetime
    seen: int | None = None
    """The `labels_version` that the user saw; None: any."""
    kind: Literal["labels_changed"] = "labels_changed"

    @property
    def key(self) -> str:
        return f"labels-{self.change}"


@dataclass(frozen=True, slots=True)
class DeleteRequested(_JobEvent):
    """A user deleted a job. A request before the job's end does not use up the key of a later one."""

    job_id: str
    change: str
    """Identifies the request, so that a repeated request is one event."""
    at: datetime
    kind: Literal["delete_requested"] = "delete_requested"

    @property
    def key(self) -> str:
        return f"delete-{self.change}"


class Deadline(StrEnum):
    RUNNING = "running"  # maxRunningTime since RUNNING
    WAIT = "wait"  # maxWaitTime since creation, before RUNNING


@dataclass(frozen=True, slots=True)
class DeadlinePassed(_JobEvent):
    """The sweep found that a deadline of the job has passed."""

    job_id: str
    deadline: Deadline
    at: datetime
    kind: Literal["deadline_passed"] = "deadline_passed"

    @property
    def key(self) -> str:
        return f"deadline-{self.deadline}"


# Events about a tuning job and its trials


@dataclass(frozen=True, slots=True)
class TrialSuggested(_JobEvent):
    """Values were chosen for the next trial of a tuning job.

    A suggestion that is too late for one state of the tuning job may be right for a later state. `ended` makes it
    another event then.
    """

    job_id: str
    number: int
    """Number of the trial."""
    values: tuple[str, ...]
    """Values in the order of the parameters."""
    at: datetime
    ended: int = 0
    """Number of trials that had ended when the values were chosen."""
    kind: Literal["trial_suggested"] = "trial_suggested"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-suggested-{self.ended}"


@dataclass(frozen=True, slots=True)
class TrialStarted(_JobEvent):
    """The job of a trial is RUNNING."""

    job_id: str
    number: int
    """Number of the trial."""
    started_at: datetime
    """When the trial's job became RUNNING."""
    at: datetime
    kind: Literal["trial_started"] = "trial_started"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-running"


@dataclass(frozen=True, slots=True)
class TrialEnded(_JobEvent):
    """The job of a trial ended."""

    job_id: str
    number: int
    """Number of the trial."""
    state: TrialState
    ended_at: datetime
    """When the trial's job ended."""
    at: datetime
    measurement: Measurement | None = None
    error: str = ""
    """Error message of the trial's job."""
    kind: Literal["trial_ended"] = "trial_ended"

    @property
    def key(self) -> str:
        return f"trial-{self.number}-ended"


@dataclass(frozen=True, slots=True)
class TuningEnded(_JobEvent):
    """No further trial of the tuning job begins, and none is needed to decide how it ends."""

    job_id: str
    at: datetime
    ended: int = 0
    """Number of trials that had ended."""
    kind: Literal["tuning_ended"] = "tuning_ended"

    @property
    def key(self) -> str:
        return f"tuning-ended-{self.ended}"


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
TuningEvent = TrialSuggested | TrialStarted | TrialEnded | TuningEnded
Event = JobSubmitted | ReplicaEvent | JobEvent | TuningEvent
