"""What is stored about a job: the job itself and one replica per replica and attempt.

    Job        one document, written only on job-level transitions
    Replica    one document per (attempt, task type, index), written by that replica's own events

Everything here is a value. `shared.core.evolve` is the only place where one becomes another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from shared.core.model.exit_policy import Blame, ExitPolicy
from shared.core.model.replica_id import PRIMARY_TYPES, ReplicaId, TaskType
from shared.core.model.tuning import Measurement, TrialOf, Tuning, study_of

RESTARTS_MAX: Final = 5
"""Restarts of one replica in one attempt. Source: the service's fault tolerance rules (at most 5 per worker)."""
RERUNS_MAX: Final = 3
"""Reruns of the whole job. Source: the same rules (whole-job retry at most 3 times)."""
FUSE_SLACK_S: Final = 3600
"""Between the latest moment a job may still run and the fuse of its machines: no healthy one is ever near it."""
INTERNAL_RETRIES_MAX: Final = 2
"""Attempts restarted after internal errors. Source: the same rules (3 attempts in all)."""

CUSTOM_JOB_PREFIX: Final = "custom_"
"""Vertex AI gives jobs numbers, and ids begin with a letter."""


class JobState(StrEnum):
    """The service's own words, which its clients match on."""

    QUEUED = "QUEUED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class ReplicaState(StrEnum):
    """Where one replica stands. RESTARTING and REPLACING are *down for a cause of its own*: peers that die meanwhile are
    collateral and wait in HELD, which is not a cause, so two replicas can never wait for each other."""

    WAITING = "WAITING"  # its VM is desired; the agent has not spoken yet
    RUNNING = "RUNNING"  # the agent said vm-ready for this incarnation
    RESTARTING = "RESTARTING"  # its next incarnation was ordered in the same VM
    REPLACING = "REPLACING"  # another VM was ordered under the same name
    HELD = "HELD"  # died of a peer's loss; its next incarnation starts when no peer is down
    COMPLETED = "COMPLETED"  # exited 0

    @property
    def is_down(self) -> bool:
        return self in (ReplicaState.RESTARTING, ReplicaState.REPLACING)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`type` in Compute Engine's own spelling (`nvidia-tesla-t4`); `count` per VM."""

    type: str
    count: int


class TpuQueue(StrEnum):
    """How a slice is waited for in Cloud TPU's own queue, where it is."""

    STANDARD = "standard"  # like any other: on demand, Spot, reserved
    FLEX_START = "flex_start"  # for a bounded time, at the price of that


FLEX_START_MAX_S: Final = 7 * 24 * 3600
"""Source: "Request Cloud TPUs using Flex-start"."""


@dataclass(frozen=True, slots=True)
class Tpu:
    """One Cloud TPU slice, which is one replica: its `hosts` all run the program.

    `type` and `runtime` in Cloud TPU's own spelling (`v5litepod-16`, `v2-alpha-tpuv5-lite`); `topology` (`4x4`) only
    where the type does not say it. `queue` None: it is made at once, or refused.
    """

    type: str
    runtime: str
    hosts: int = 1
    topology: str | None = None
    queue: TpuQueue | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """`command` replaces the image's ENTRYPOINT. Source: the API's ReplicaConfig."""

    image: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """Of the program's environment. `secret` is a Secret Manager version's resource name, read on the VM; then `value`
    is empty: what is secret is stored nowhere."""

    name: str
    value: str = ""
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """What a replica runs: packages installed in order, then `python -m module args… --job-dir job_dir`; or a
    container with these arguments, and then there are neither packages nor module."""

    package_uris: tuple[str, ...]
    python_module: str
    args: tuple[str, ...]
    job_dir: str | None
    container: Container | None = None
    environment: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """All replicas of one task type: same machine, same image. `machine_type` is empty where `tpu` is the machine.

    `program`: where the role runs something else than the job's. `spot`: its VMs are bought as Spot VMs.
    """

    task_type: TaskType
    count: int
    machine_type: str
    accelerator: Accelerator | None = None
    boot_disk_gib: int = 100
    boot_disk_type: str = "pd-ssd"
    tpu: Tpu | None = None
    program: Program | None = None
    spot: bool = False

    @property
    def hosts(self) -> int:
        """Of each replica: machines that run the program together."""
        return self.tpu.hosts if self.tpu else 1


@dataclass(frozen=True, slots=True)
class Substitution:
    """Something the job asked for that no longer exists, and what it gets instead; shown by `describe`."""

    field: str
    asked: str
    given: str
    why: str


class Dialect(StrEnum):
    """Whose job format the spec is in: what its program finds in its environment follows from it."""

    AI_PLATFORM = "ai_platform"  # TrainingInput: CLOUD_ML_*, --job-dir
    VERTEX = "vertex"  # CustomJobSpec: AIP_*, worker pools in CLUSTER_SPEC


@dataclass(frozen=True, slots=True)
class Plan:
    """What the spec means, resolved once when the job is accepted: later settings change no running job.

    `max_running_s` counts from RUNNING, `max_wait_s` (None: no limit) from creation until RUNNING. `packages` is what
    pip adds to the image so that the runtime is what its version says. A replica that lost `on_demand_after` Spot VMs
    (None: never) gets one on demand. `reservation` is the name of one to use; `kms_key` encrypts the boot disks;
    `checkpoint_signal` is what asks the program to save before its VM goes; `output_directory` is Vertex's base.
    `independent`: its replicas do not wait for each other, so that none dies of another's loss.
    """

    groups: tuple[TaskGroup, ...]
    program: Program
    region: str
    zones: tuple[str, ...]
    runtime: str
    image: str
    max_running_s: int
    max_wait_s: int | None = None
    restart_job_on_worker_restart: bool = False
    disable_retries: bool = False
    exit_policy: ExitPolicy = field(default_factory=ExitPolicy)
    service_account: str | None = None
    network: str | None = None
    substitutions: tuple[Substitution, ...] = ()
    packages: tuple[str, ...] = ()
    on_demand_after: int | None = None
    reservation: str | None = None
    kms_key: str | None = None
    checkpoint_signal: str = "SIGTERM"
    dialect: Dialect = Dialect.AI_PLATFORM
    output_directory: str | None = None
    priority: int = 0
    independent: bool = False

    @property
    def replica_ids(self) -> tuple[ReplicaId, ...]:
        return tuple(ReplicaId(group.task_type, index) for group in self.groups for index in range(group.count))

    @property
    def primary(self) -> ReplicaId:
        """The replica whose exit 0 ends the job well: chief or master; worker 0 where there is neither."""
        for group in self.groups:
            if group.task_type in PRIMARY_TYPES:
                return ReplicaId(group.task_type, 0)
        return ReplicaId(TaskType.WORKER, 0)

    @property
    def fuse_s(self) -> int:
        """How long a machine of the job lasts that nobody deletes."""
        return self.max_running_s + (self.max_wait_s or 0) + FUSE_SLACK_S

    @property
    def tpu_zones(self) -> tuple[str, ...]:
        """Where TPU nodes of the job may be. Empty: it has none, and Cloud TPU need not be asked."""
        return self.zones if any(group.tpu for group in self.groups) else ()

    @property
    def slices(self) -> tuple[ReplicaId, ...]:
        """Its TPU slices in the order of their ranks, where they have peers: no name leads to a slice, so that all
        replicas have to be told where they are. Empty: there are none, or one that is alone. An evaluator is no peer:
        it runs beside the cluster."""
        cluster = [group for group in self.groups if group.task_type is not TaskType.EVALUATOR]
        groups = [group for group in cluster if group.tpu]
        if not groups or sum(group.count for group in cluster) == 1:
            return ()
        groups.sort(key=lambda group: list(TaskType).index(group.task_type))
        return tuple(ReplicaId(group.task_type, index) for group in groups for index in range(group.count))

    def group(self, task_type: TaskType) -> TaskGroup:
        return next(group for group in self.groups if group.task_type == task_type)

    def program_of(self, task_type: TaskType) -> Program:
        return self.group(task_type).program or self.program


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the job as a whole has used. Restarts are counted on the replica."""

    reruns_used: int = 0
    internal_used: int = 0


@dataclass(frozen=True, slots=True)
class LastRerun:
    """The latest attempt's beginning, where a replica's exit was charged for it: a loss that is known only later may
    explain that exit."""

    at: datetime
    blame: Blame


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the gang is requested: an index into the plan's zones, and how often it was refused. `since`: the latest
    search's first capacity error; `next_at`: before that nobody is asked."""

    zone_index: int = 0
    round: int = 0
    since: datetime | None = None
    next_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Label:
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Job:
    """`spec_json` is the job as submitted, verbatim. `submission` identifies the submission, so that the same file or
    message delivered twice is one job; `submitted_by` is the e-mail of who did, where the API knows it. `version`
    counts the writes of this document, `labels_version` those of its labels. `deleted_at`: since when its users no
    longer see it. `tuning`: it is a tuning job, which has no replicas; its plan is that of its trials. `trial_of`: it
    is a trial of one."""

    job_id: str
    spec_json: str
    submission: str
    plan: Plan
    state: JobState
    created_at: datetime
    labels: tuple[Label, ...] = ()
    attempt: int = 1
    budgets: Budgets = field(default_factory=Budgets)
    placement: Placement = field(default_factory=Placement)
    last_rerun: LastRerun | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_message: str | None = None
    labels_version: int = 1
    submitted_by: str | None = None
    deleted_at: datetime | None = None
    tuning: Tuning | None = None
    trial_of: TrialOf | None = None
    version: int = 1

    @property
    def zone(self) -> str:
        return self.plan.zones[self.placement.zone_index]


@dataclass(frozen=True, slots=True)
class LastExit:
    """The most recent charged exit of a replica: what rule 8 compares the next one with."""

    incarnation: int
    exit_status: int | None
    signal: int | None
    signature: str | None
    blame: Blame = Blame.UNKNOWN


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica in one attempt.

    `incarnation` counts its incarnations within the attempt, `machine` the VMs the replica has had over the whole job.
    `instance_id` is Compute's numeric id of the current VM, once the agent has spoken. `ready_at` is when its present
    or, while it is down, its last incarnation began; `lost_at` when a incarnation of it last ended for a cause of its own,
    `forgiven_at` when one last ended for a peer's, `charged_at` when a restart was last charged, `ordered_at` when its
    present incarnation was ordered, `done_at` when it exited 0. Where the replica is a slice of several hosts: which of them
    are up, and have exited 0, in this incarnation. `measurement`: what its program last reported, in a trial.
    """

    attempt: int
    replica_id: ReplicaId
    state: ReplicaState = ReplicaState.WAITING
    incarnation: int = 1
    vm_generation: int = 1
    instance_id: str | None = None
    restarts_used: int = 0
    replaced: int = 0
    collateral: int = 0
    startup_timeouts: int = 0
    ready_at: datetime | None = None
    lost_at: datetime | None = None
    forgiven_at: datetime | None = None
    charged_at: datetime | None = None
    last_exit: LastExit | None = None
    ordered_at: datetime | None = None
    done_at: datetime | None = None
    hosts_ready: tuple[int, ...] = ()
    hosts_done: tuple[int, ...] = ()
    measurement: Measurement | None = None
    version: int = 1

    @property
    def key(self) -> str:
        return replica_key(self.attempt, self.replica_id)

    @property
    def ever_ready(self) -> bool:
        return self.ready_at is not None

    @property
    def ever_lost(self) -> bool:
        return self.lost_at is not None


@dataclass(frozen=True, slots=True)
class State:
    """A job and those of its replicas that were loaded: all of the attempt's where `whole`, else the one asked for and
    its peers that were ever lost."""

    job: Job
    replicas: tuple[Replica, ...] = ()
    whole: bool = False

    def find(self, attempt: int, replica_id: ReplicaId) -> Replica | None:
        return next((each for each in self.replicas if each.attempt == attempt and each.replica_id == replica_id), None)


def public_id(job_id: str) -> str:
    """The id that a job's users know, its programs and its log have: of a custom job made by the API, its number; of a
    trial, its tuning job's."""
    job_id = study_of(job_id)
    number = job_id.removeprefix(CUSTOM_JOB_PREFIX)
    return number if number.isdecimal() else job_id


def replica_key(attempt: int, replica_id: ReplicaId) -> str:
    return f"{attempt}-{replica_id}"
