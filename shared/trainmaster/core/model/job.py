"""What is stored about a job.

    Job        one document, written only when the job as a whole changes
    Replica    one document per (attempt, replica id), written by the events of that replica

The VMs of a job that are requested together, in one zone, are its gang. Each request is a placement
round, and each zone that it may be sent to is a candidate; a pass is one request to each candidate.
The other kind of round (`Job.round`) is one common run of the members of a synchronous job, held
while they wait for each other. A machine set is VMs that one job after another uses, its holders.
A wasted machine is a VM that gave its replica no ten useful minutes. Required replicas are those
without which a job cannot run; the VMs of all others are optional.

Everything here is an immutable value. `trainmaster.core.evolve` is the only place where one becomes
another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.machine_set import HeldMachines, MachineSet
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round
from trainmaster.core.model.tuning import TrialOf, Tuning, tuning_job_id

RESTARTS_MAX: Final = 5
"""Charged restarts of one replica in one attempt.

Source: the fault tolerance rules of AI Platform Training (5 per worker).
"""
RERUNS_MAX: Final = 3
"""Charged reruns of a job. Source: the same rules (whole-job retry at most 3 times)."""

CUSTOM_JOB_PREFIX: Final = "custom_"
"""Prefix of the ids of custom jobs made by the API. Vertex AI gives jobs numbers, and our ids begin
with a letter.
"""


class JobState(StrEnum):
    """State of a job, in the words of AI Platform Training, which its clients match on."""

    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Budgets:
    """Reruns that the job has used. Restarts are counted per replica."""

    reruns_used: int = 0


@dataclass(frozen=True, slots=True)
class LeftZone:
    """A zone that the gang was requested in before, and that may still have VMs."""

    zone: str
    may_run: bool
    """Whether programs may still run there."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the gang is requested."""

    zone_index: int = 0
    """The candidate: index into the plan's zones."""
    round: int = 0
    """Number of the placement round: one request for VMs in one zone.

    The next one begins after a capacity error, wasted machines, or a move to another zone.
    """
    since: datetime | None = None
    """First capacity error of the current search for capacity."""
    next_at: datetime | None = None
    """Earliest time of the next request; None: at once."""
    only_optional: bool = False
    """Whether only optional VMs were missing at the last capacity error: required ones do not wait
    for `next_at`.
    """
    problem: str = ""
    """Which quota was used up, or where there was no capacity, at the last capacity error; empty:
    unknown.
    """
    blocked_since: datetime | None = None
    """When Google began to refuse or fail all requests: the first of the latest such errors in a
    row; None: the last capacity error was of another kind, such as a stockout.
    """
    floor: int = 0
    """Lowest VM generation that counts.

    A move raises it above every generation in use, which writes no replica
    (`trainmaster.core.model.floor`).
    """
    remaining: tuple[int, ...] | None = None
    """Candidates that follow in this pass.

    None: no pass has begun since the gang ran, and all candidates but the current one follow.
    """
    left: tuple[LeftZone, ...] = ()
    """Zones that the gang was requested in before this one."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a job, which its VMs have, too."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as stored."""

    job_id: str
    spec_json: str
    """The job as submitted, verbatim."""
    submission: str
    """Identifies the submission, so that the same file or message delivered twice is one job."""
    plan: Plan
    """The resolved spec; of a tuning job, the plan of its trials."""
    state: JobState
    created_at: datetime
    labels: tuple[Label, ...] = ()
    attempt: int = 1
    """The current attempt, from 1."""
    budgets: Budgets = field(default_factory=Budgets)
    placement: Placement = field(default_factory=Placement)
    """Where its VMs are requested now."""
    round: Round = field(default_factory=Round)
    """The current round of its members, if it is synchronous."""
    started_at: datetime | None = None
    """When it became RUNNING for the first time."""
    ended_at: datetime | None = None
    """When it reached a terminal state."""
    error_message: str | None = None
    """Why it ended, unless it SUCCEEDED."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the success of a job that SUCCEEDED, each note without a full stop.
    """
    last_progress: LastProgress | None = None
    """How far the program of its primary was at its end, as the program reported it; None: unknown.
    """
    labels_version: int = 1
    """Number of writes of the labels."""
    submitted_by: str | None = None
    """E-mail address of the user that submitted it, if the API knows it."""
    through_api: bool = False
    """Whether it was submitted through the API, whose callers are known."""
    deleted_at: datetime | None = None
    """When its user deleted it. Users no longer see it from then on."""
    tuning: Tuning | None = None
    """Set for a tuning job, which has no replicas of its own."""
    trial_of: TrialOf | None = None
    """Set for a trial of a tuning job."""
    cost_check_at: datetime | None = None
    """When the cost of a job with a cap is computed next; None: it has not been computed."""
    channel_key: str = field(default="", repr=False, compare=False)
    """Secret of the agents' peer channel, 32 bytes in hexadecimal digits; empty: the job has none.

    The commit of the submission draws it, so it is in no event and no decision, and a replay cannot
    know it. Only the VM configuration shows it.
    """
    machines: HeldMachines | None = None
    """Its machine set; None: the job neither takes nor keeps machines. Not stored if it is None."""
    version: int = 1
    """Number of writes of this document."""

    @property
    def set_id(self) -> str:
        """The id in the names and labels of its VMs: that of the job which created them."""
        return self.machines.set_id if self.machines else self.job_id

    @property
    def tenure(self) -> int:
        """Number of this job, from 1, among those that have held its machine set."""
        return self.machines.tenure if self.machines else 1

    @property
    def zone(self) -> str:
        """The zone in which the gang is requested."""
        return self.plan.where.zones[self.placement.zone_index]

    @property
    def needs_replicas(self) -> bool:
        """Whether its replicas decide which VMs it needs. A queued job needs none. A job that has
        ended keeps only the VMs that its machine set names.
        """
        return self.state is not JobState.QUEUED and not self.state.is_terminal

    @property
    def placed(self) -> Job:
        """The job as its VMs are requested now: with the plan of its current candidate.

        It is never stored.
        """
        return (
            replace(self, plan=self.plan.at(self.placement.zone_index))
            if self.plan.where.options
            else self
        )

    @property
    def paid_until(self) -> datetime | None:
        """Until when its VMs run without another computation of its cost; None: it has no cap."""
        cap = self.plan.limits.cap
        return cap.paid_until(self.created_at) if cap else None

    @property
    def zones_used(self) -> tuple[str, ...]:
        """Zones in which the job may have VMs, the current one first."""
        return (self.zone, *(left.zone for left in self.placement.left if left.zone != self.zone))

    @property
    def tpu_zones(self) -> tuple[str, ...]:
        """Zones in which the job may have TPU nodes; empty if it uses no TPU."""
        return self.zones_used if self.plan.tpu_zones else ()


@dataclass(frozen=True, slots=True)
class State:
    """A job and those of its replicas that were loaded."""

    job: Job
    replicas: tuple[Replica, ...] = ()
    whole: bool = False
    """Whether all replicas of the current attempt are loaded."""
    excused: tuple[datetime, ...] = ()
    """Times of restarts that do not count, of the replica that exited: a lost VM explains them
    (`core.ledger.excused_restarts`).

    They are only read once its restarts are spent.
    """
    machine_set: MachineSet | None = field(default=None, compare=False)
    """The document of the job's machine set.

    None: the job has no `machines`, or no holder of the set has ended yet. Other jobs write it,
    too, so the job's ledger does not determine it.
    """

    @property
    def keeps_machines(self) -> bool:
        """Whether the job has ended, and its machines wait for a next job."""
        machines = self.machine_set
        return machines is not None and machines.is_kept and machines.holder == self.job.job_id

    @property
    def holds_machines(self) -> bool:
        """Whether the VMs of the job's machine set are still its own."""
        machines = self.machine_set
        return machines is None or machines.holder == self.job.job_id

    def find(self, attempt: int, replica_id: ReplicaId) -> Replica | None:
        """Return the replica of this attempt; None if it does not exist or was not loaded."""
        return next(
            (
                replica
                for replica in self.replicas
                if (replica.attempt, replica.replica_id) == (attempt, replica_id)
            ),
            None,
        )


def tuning_of(job: Job) -> Tuning:
    """Return what a tuning job stores. Raises ValueError for any other job."""
    if job.tuning is None:
        raise ValueError(f"{job.job_id} is not a tuning job")
    return job.tuning


def public_id(job_id: str) -> str:
    """Return the id that users, programs and logs see: the number of a custom job made by the API,
    the id of the tuning job of a trial, else the job id.
    """
    job_id = tuning_job_id(job_id)
    number = job_id.removeprefix(CUSTOM_JOB_PREFIX)
    return number if number.isdecimal() else job_id
