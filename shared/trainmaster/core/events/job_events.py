"""Events about a job as a whole.

The gang is the VMs of a job that are requested together, in one zone; each request is a placement
round, and a pass is one request in each of the job's zones. The floor is the lowest VM generation
that counts. A member is a replica of a synchronous job, and a round one common run of all members,
which is held until all of them are ready. The sweep looks at all jobs every minute.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final, Literal

from trainmaster.core.events.reads import Reads
from trainmaster.core.events.replica_events import End
from trainmaster.core.model.capacity import Prospect
from trainmaster.core.model.job import Job, Label
from trainmaster.core.model.machine_set import ReleaseCause, Taken
from trainmaster.core.model.replica_id import ReplicaId

CAUSES_MAX: Final = 256
"""Causes of one hour for which a job's VMs are out of reach, at most: each is a ledger entry."""


class JobEventBase:
    """An event about a job as a whole."""

    __slots__ = ()

    @property
    def reads(self) -> Reads:
        return Reads()


@dataclass(frozen=True, slots=True)
class JobSubmitted(JobEventBase):
    """A valid job was submitted."""

    job: Job
    """The job as it will be stored if no job has its id."""
    at: datetime
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
class ProvisioningStarted(JobEventBase):
    """The job left the admission queue."""

    job_id: str
    at: datetime
    is_admission: bool = False
    """Whether an admission pass admitted the job, so that its VMs must be requested.

    Otherwise they are requested by the delivery that recorded this event.
    """
    outlook: tuple[Prospect, ...] = ()
    """The prospects of the plan's zones; empty: there is one zone."""
    taken: Taken | None = None
    """The kept machines that it takes. Not stored if it is None."""
    misfit: str | None = None
    """Why a job that may take machines takes none, as a sentence. Not stored if it is None."""
    kind: Literal["provisioning_started"] = "provisioning_started"

    @property
    def key(self) -> str:
        return "preparing"

    @property
    def reads(self) -> Reads:
        return Reads(whole_attempt=self.taken is not None)


@dataclass(frozen=True, slots=True)
class AllReady(JobEventBase):
    """Every required replica of the attempt has been ready since the gang last moved.

    For a tuning job: its first trial runs.

    With a round: every member that has a VM is ready for this held round.
    """

    job_id: str
    attempt: int
    at: datetime
    round: int = 0
    """The held round; 0: the event is about the start of the job."""
    ends: tuple[End, ...] = ()
    """The first ends of members in the round before, in the order in which they decide
    (`rules.verdict`).
    """
    without: tuple[ReplicaId, ...] = ()
    """Members of an elastic job that await their VMs, and that the round may begin without."""
    floor: int = 0
    """Without a round: the placement's floor for which the replicas were counted."""
    kind: Literal["all_ready"] = "all_ready"

    @property
    def key(self) -> str:
        return (
            f"{self.attempt}-round-{self.round}-all-ready"
            if self.round
            else f"{self.attempt}-all-ready"
        )

    @property
    def reads(self) -> Reads:
        return Reads(whole_attempt=bool(self.round))


@dataclass(frozen=True, slots=True)
class MembersJoin(JobEventBase):
    """Members that the running round goes without are ready: all save, so that the next round
    begins with them.
    """

    job_id: str
    attempt: int
    round: int
    number: int
    """Number of the request to save that follows."""
    at: datetime
    kind: Literal["members_join"] = "members_join"

    @property
    def key(self) -> str:
        return f"{self.attempt}-round-{self.round}-members-join-{self.number}"

    @property
    def reads(self) -> Reads:
        return Reads(whole_attempt=True)


class CapacityErrorKind(StrEnum):
    """Why Compute Engine or Cloud TPU did not create VMs."""

    STOCKOUT = "stockout"  # no capacity in the zone: try the next zone
    QUOTA = "quota"  # the project's quota in the region is used up: wait
    # permission, disabled API, billing, missing image or network: wait until it is repaired.
    BLOCKED = "blocked"
    DENIED = "denied"  # the request itself is wrong: trying again cannot help
    INTERNAL = "internal"  # any other error that Google returns


@dataclass(frozen=True, slots=True)
class VmsNotCreated(JobEventBase):
    """None of the VMs of an insert was created."""

    job_id: str
    attempt: int
    zone: str
    """Zone in which they were requested."""
    round: int
    """Placement round in which they were requested."""
    error_kind: CapacityErrorKind
    code: str
    """Google's error code."""
    message: str
    """Google's error message."""
    at: datetime
    zones_available: tuple[str, ...] = ()
    """Zones that Google named as having capacity."""
    requested: str = "VMs"
    """The request in words: `2 x n1-standard-8 (worker)`."""
    others_created: bool = False
    """Whether the zone has VMs of other roles.

    Only looked up for jobs with a cap (`maxCost`), or that are no gang.
    """
    required_present: bool = False
    """Whether a job without a gang has the VMs of all its required replicas in the zone."""
    outlook: tuple[Prospect, ...] = ()
    """The prospects of the plan's zones if a pass may begin; otherwise empty."""
    kind: Literal["vms_not_created"] = "vms_not_created"

    @property
    def key(self) -> str:
        return f"{self.attempt}-not-created-{self.round}-{self.zone}"

    @property
    def reads(self) -> Reads:
        return Reads(whole_attempt=True)


@dataclass(frozen=True, slots=True)
class VmsQueued(JobEventBase):
    """The job's VMs wait in Cloud TPU's queue."""

    job_id: str
    attempt: int
    zone: str
    round: int
    """Placement round in which they were requested."""
    requested: str
    """The request in words: `1 x v5litepod-16 (worker)`."""
    at: datetime
    kind: Literal["vms_queued"] = "vms_queued"

    @property
    def key(self) -> str:
        return f"{self.attempt}-queued-{self.round}-{self.zone}"


@dataclass(frozen=True, slots=True)
class VmsOutOfReach(JobEventBase):
    """Google cannot reach the zone of the job's VMs, or refuses calls about them.

    Each cause is recorded once an hour.

    The cause is the problem without its numbers, so that all replicas of a role share it. At most
    `CAUSES_MAX` causes are told apart.
    """

    job_id: str
    problem: str
    """What Google does not do, as the beginning of a sentence."""
    at: datetime
    kind: Literal["vms_out_of_reach"] = "vms_out_of_reach"

    @property
    def key(self) -> str:
        cause = zlib.crc32(re.sub(r"\d+", "", self.problem).encode()) % CAUSES_MAX
        return f"out-of-reach-{self.at:%Y%m%d%H}-{cause}"


@dataclass(frozen=True, slots=True)
class ZonesEmptied(JobEventBase):
    """A complete listing shows no VM of the job in the zones that it has left.

    A VM that a late insert creates there afterwards gets no order to run, and is deleted.
    """

    job_id: str
    attempt: int
    round: int
    """The placement round of the listing."""
    at: datetime
    kind: Literal["zones_emptied"] = "zones_emptied"

    @property
    def key(self) -> str:
        return f"{self.attempt}-emptied-{self.round}"


@dataclass(frozen=True, slots=True)
class MachinesReleased(JobEventBase):
    """The machines that an ended job keeps are needed no longer, or for something else."""

    job_id: str
    """The holder of the machine set."""
    tenure: int
    cause: ReleaseCause
    at: datetime
    by: str = ""
    """The user who released them, or the job that needs what they use; empty: neither did."""
    kind: Literal["machines_released"] = "machines_released"

    @property
    def key(self) -> str:
        return f"machines-released-{self.tenure}"


@dataclass(frozen=True, slots=True)
class MachinesLost(JobEventBase):
    """VMs that an ended job keeps do not run any more, or its replicas lost them as it ended."""

    job_id: str
    """The holder of the machine set."""
    instance_ids: tuple[str, ...]
    seen: int
    """Version of the set that had them."""
    at: datetime
    kind: Literal["machines_lost"] = "machines_lost"

    @property
    def key(self) -> str:
        return f"machines-lost-{self.seen}-{self.instance_ids[0]}"


@dataclass(frozen=True, slots=True)
class CancelRequested(JobEventBase):
    """A user, or the tuning job of a trial, requested that the job be cancelled."""

    job_id: str
    by: str
    at: datetime
    kind: Literal["cancel_requested"] = "cancel_requested"

    @property
    def key(self) -> str:
        return "cancel"


@dataclass(frozen=True, slots=True)
class LabelsChanged(JobEventBase):
    """A user replaced all labels of a job, which may have ended."""

    job_id: str
    labels: tuple[Label, ...]
    change: str
    """Identifies the request, so that a repeated request is one event."""
    at: datetime
    by: str
    """The user: an e-mail address, or the name of the command line's user."""
    seen: int | None = None
    """The `labels_version` that the user saw; None: any."""
    kind: Literal["labels_changed"] = "labels_changed"

    @property
    def key(self) -> str:
        return f"labels-{self.change}"


@dataclass(frozen=True, slots=True)
class DeleteRequested(JobEventBase):
    """A user requested that the job be deleted.

    Each request has a key of its own: one that came before the job's end does not make a later one
    a duplicate.
    """

    job_id: str
    change: str
    """Identifies the request, so that a repeated request is one event."""
    at: datetime
    by: str
    """The user: an e-mail address, or `trainmaster` for trials."""
    kind: Literal["delete_requested"] = "delete_requested"

    @property
    def key(self) -> str:
        return f"delete-{self.change}"


class Deadline(StrEnum):
    RUNNING = "running"  # maxRunningTime since RUNNING
    WAIT = "wait"  # maxWaitTime since creation, before RUNNING


@dataclass(frozen=True, slots=True)
class CostChecked(JobEventBase):
    """The sweep computed what a job with `maxCost` has cost."""

    job_id: str
    spent: Decimal
    """The most that it has cost until `at`, in the currency of its cap."""
    at: datetime
    kind: Literal["cost_checked"] = "cost_checked"

    @property
    def key(self) -> str:
        return f"cost-{self.at:%Y%m%d%H%M}"


@dataclass(frozen=True, slots=True)
class DeadlinePassed(JobEventBase):
    """The sweep found that a deadline of the job has passed."""

    job_id: str
    deadline: Deadline
    at: datetime
    kind: Literal["deadline_passed"] = "deadline_passed"

    @property
    def key(self) -> str:
        return f"deadline-{self.deadline}"
