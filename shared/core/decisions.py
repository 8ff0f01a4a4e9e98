"""The judge's answers: a closed union of verb phrases. Each names the rule that gave it and a machine word why.

`text` says the same to a person, in one sentence. `shared.core.evolve` carries a decision out on the stored state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Literal

from shared.core.model.exit_policy import Blame
from shared.core.model.job import Job, Label
from shared.core.model.replica import LastExit
from shared.core.model.tuning import Measurement, TrialState


class Rule(IntEnum):
    """The rows of the rule table, first match wins; 0 is the plain course of a job."""

    LIFECYCLE = 0
    STALE = 1
    PRIMARY_DONE = 2
    REPLICA_DONE = 3
    VM_LOST = 4
    INTERNAL = 5
    RETRIES_DISABLED = 6
    COLLATERAL = 7
    PERMANENT = 8
    CRASH = 9
    RESTART = 10
    CAPACITY = 11
    ENDED = 12
    TUNING = 13


class Reason(StrEnum):
    """Stored and counted; never shown alone."""

    ACCEPTED = "accepted"
    PREPARING = "preparing"
    READY = "ready"
    HOST_READY = "host_ready"
    ALL_READY = "all_ready"
    JOB_ENDED = "job_ended"
    JOB_ID_TAKEN = "job_id_taken"
    OLD_ATTEMPT = "old_attempt"
    OLD_INCARNATION = "old_incarnation"
    OLD_VM_GENERATION = "old_vm_generation"
    UNKNOWN_INCARNATION = "unknown_incarnation"
    NOTHING_TO_DO = "nothing_to_do"
    PRIMARY_EXITED_ZERO = "primary_exited_zero"
    EXITED_ZERO = "exited_zero"
    HOST_EXITED_ZERO = "host_exited_zero"
    PRIMARY_RESTARTED = "primary_restarted"
    MAINTENANCE = "maintenance"
    PREEMPTION = "preemption"
    HOST_ERROR = "host_error"
    GONE = "gone"
    STARTUP_TIMEOUT = "startup_timeout"
    WRONG_ZONE = "wrong_zone"
    VM_STOPPING = "vm_stopping"
    VM_RESTARTED = "vm_restarted"
    SETUP_FAILED = "setup_failed"
    CREATE_FAILED = "create_failed"
    INTERNAL_BUDGET_SPENT = "internal_budget_spent"
    RETRIES_DISABLED = "retries_disabled"
    PEER_DOWN = "peer_down"
    PEER_LOST_MEANWHILE = "peer_lost_meanwhile"
    OUT_OF_MEMORY = "out_of_memory"
    COMMON_ERROR = "common_error"
    INSTALL_FAILED = "install_failed"
    SAME_FAILURE_AGAIN = "same_failure_again"
    EXIT_POLICY = "exit_policy"
    CRASH_SIGNAL = "crash_signal"
    NON_ZERO_EXIT = "non_zero_exit"
    RESTARTS_SPENT = "restarts_spent"
    RERUNS_SPENT = "reruns_spent"
    RESTART_JOB_ON_WORKER_RESTART = "restart_job_on_worker_restart"
    STOCKOUT = "stockout"
    STOCKOUT_LASTS = "stockout_lasts"
    QUOTA = "quota"
    QUEUED = "queued"
    NEVER_ANY_CAPACITY = "never_any_capacity"
    DENIED = "denied"
    MAX_RUNNING_TIME = "max_running_time"
    MAX_WAIT_TIME = "max_wait_time"
    CANCELLED_BY_USER = "cancelled_by_user"
    LABELS_CHANGED = "labels_changed"
    CHANGED_MEANWHILE = "changed_meanwhile"
    DELETED_BY_USER = "deleted_by_user"
    NOT_ENDED = "not_ended"
    TRIAL_SUGGESTED = "trial_suggested"
    TRIAL_RUNNING = "trial_running"
    TRIAL_SUCCEEDED = "trial_succeeded"
    TRIAL_WITHOUT_METRIC = "trial_without_metric"
    TRIAL_FAILED = "trial_failed"
    TRIAL_CANCELLED = "trial_cancelled"
    TRIALS_DONE = "trials_done"
    TOO_MANY_TRIALS_FAILED = "too_many_trials_failed"
    NO_TRIAL_SUCCEEDED = "no_trial_succeeded"


class Budget(StrEnum):
    """Which named limit a decision charges."""

    FREE = "free"
    RESTARTS = "restarts"
    RERUNS = "reruns"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Ignore:
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["ignore"] = "ignore"


@dataclass(frozen=True, slots=True)
class AcceptJob:
    job: Job
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["accept_job"] = "accept_job"


@dataclass(frozen=True, slots=True)
class BeginPreparing:
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["begin_preparing"] = "begin_preparing"


@dataclass(frozen=True, slots=True)
class MarkReady:
    """`instance_id` is Compute's numeric id of the VM that spoke."""

    replica: str
    instance_id: str
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["mark_ready"] = "mark_ready"


@dataclass(frozen=True, slots=True)
class MarkHostReady:
    """One host of a slice is up; others are awaited."""

    replica: str
    host: int
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["mark_host_ready"] = "mark_host_ready"


@dataclass(frozen=True, slots=True)
class BeginRunning:
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["begin_running"] = "begin_running"


@dataclass(frozen=True, slots=True)
class RecordCompletion:
    replica: str
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["record_completion"] = "record_completion"


@dataclass(frozen=True, slots=True)
class RecordHostDone:
    """One host of a slice exited 0; others run on."""

    replica: str
    host: int
    rule: Rule
    reason: Reason
    text: str
    measurement: Measurement | None = None
    kind: Literal["record_host_done"] = "record_host_done"


@dataclass(frozen=True, slots=True)
class ReactivateReplica:
    """The next incarnation of one that had exited 0, on another VM of the same name. Always free."""

    replica: str
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["reactivate_replica"] = "reactivate_replica"


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """Its next incarnation, in the same VM, at once. Charged to its restarts, or free where it is not its fault.

    `refunded`: replicas whose last charge this loss explains after all.
    """

    replica: str
    last_exit: LastExit
    charge: Budget
    rule: Rule
    reason: Reason
    text: str
    refunded: tuple[str, ...] = ()
    measurement: Measurement | None = None
    kind: Literal["restart_replica"] = "restart_replica"


@dataclass(frozen=True, slots=True)
class HoldReplica:
    """Its next incarnation, in the same VM, as soon as no peer is down. Always free; `charged_to` is the cause."""

    replica: str
    charged_to: str
    rule: Rule
    reason: Reason
    text: str
    measurement: Measurement | None = None
    kind: Literal["hold_replica"] = "hold_replica"


@dataclass(frozen=True, slots=True)
class ReplaceVm:
    """Its next incarnation, on another VM of the same name. Always free. `refunded` as of RestartReplica;
    `refunds_rerun`: the loss explains why the job was rerun."""

    replica: str
    rule: Rule
    reason: Reason
    text: str
    refunded: tuple[str, ...] = ()
    refunds_rerun: bool = False
    measurement: Measurement | None = None
    kind: Literal["replace_vm"] = "replace_vm"


@dataclass(frozen=True, slots=True)
class RerunJob:
    """The job's next attempt, on the VMs that are there. Charged to the reruns or to the internal retries; free where
    the whole gang moves to `zone_index`, because the zone has no VM for the rest of it, and where a VM was lost and one
    restart reruns the job: that of the replica `lost`, which gets another one. `blame`: of whom the exit told that is
    charged for it."""

    charge: Budget
    rule: Rule
    reason: Reason
    text: str
    zone_index: int | None = None
    lost: str | None = None
    blame: Blame = Blame.OWN
    kind: Literal["rerun_job"] = "rerun_job"


@dataclass(frozen=True, slots=True)
class ContinueProvisioning:
    """The next zone, or the same one again: where VMs are requested from now on, in a search that began `since`, and not
    before `next_at` (None: at once)."""

    zone_index: int
    round: int
    rule: Rule
    reason: Reason
    text: str
    since: datetime | None = None
    next_at: datetime | None = None
    kind: Literal["continue_provisioning"] = "continue_provisioning"


@dataclass(frozen=True, slots=True)
class SucceedJob:
    replica: str
    rule: Rule
    reason: Reason
    text: str
    measurement: Measurement | None = None
    kind: Literal["succeed_job"] = "succeed_job"


@dataclass(frozen=True, slots=True)
class FailJob:
    """`message` becomes the job's errorMessage, in the service's words. `replica`: whose exit it was, if one's."""

    message: str
    rule: Rule
    reason: Reason
    text: str
    replica: str | None = None
    kind: Literal["fail_job"] = "fail_job"


@dataclass(frozen=True, slots=True)
class CancelJob:
    message: str
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["cancel_job"] = "cancel_job"


@dataclass(frozen=True, slots=True)
class SetLabels:
    labels: tuple[Label, ...]
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["set_labels"] = "set_labels"


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Its users no longer see it. What is stored stays: the id is used up, and the ledger tells what was."""

    rule: Rule
    reason: Reason
    text: str
    kind: Literal["delete_job"] = "delete_job"


@dataclass(frozen=True, slots=True)
class BeginTrial:
    """A tuning job's next trial, with these values in the order of its parameters."""

    number: int
    values: tuple[str, ...]
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["begin_trial"] = "begin_trial"


@dataclass(frozen=True, slots=True)
class MarkTrialRunning:
    number: int
    started_at: datetime
    rule: Rule
    reason: Reason
    text: str
    kind: Literal["mark_trial_running"] = "mark_trial_running"


@dataclass(frozen=True, slots=True)
class EndTrial:
    """`error`: why it failed."""

    number: int
    state: TrialState
    ended_at: datetime
    rule: Rule
    reason: Reason
    text: str
    measurement: Measurement | None = None
    error: str = ""
    kind: Literal["end_trial"] = "end_trial"


@dataclass(frozen=True, slots=True)
class CompleteStudy:
    """A tuning job SUCCEEDED: all its trials have ended, and one of them well."""

    rule: Rule
    reason: Reason
    text: str
    kind: Literal["complete_study"] = "complete_study"


Decision = (
    Ignore
    | AcceptJob
    | BeginPreparing
    | MarkReady
    | MarkHostReady
    | BeginRunning
    | RecordCompletion
    | RecordHostDone
    | ReactivateReplica
    | RestartReplica
    | HoldReplica
    | ReplaceVm
    | RerunJob
    | ContinueProvisioning
    | SucceedJob
    | FailJob
    | CancelJob
    | SetLabels
    | DeleteJob
    | BeginTrial
    | MarkTrialRunning
    | EndTrial
    | CompleteStudy
)
