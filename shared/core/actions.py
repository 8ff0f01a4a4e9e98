"""Actions: the changes that decisions make to the stored state.

A closed union in three families: actions on the job, on one replica, and on a trial of a tuning job. An action holds
only what `shared.core.evolve` needs; `shared.core.decisions.Decision` says which rule chose it and why. Replicas are
named by the keys of their documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from shared.core.model.exit_policy import Blame
from shared.core.model.job import Job, Label
from shared.core.model.learning_curve import TrialReport
from shared.core.model.replica import HostVm, PastIncarnation
from shared.core.model.tuning import Measurement, TrialState


class Budget(StrEnum):
    """The limit that an action is charged to."""

    FREE = "free"
    RESTARTS = "restarts"
    RERUNS = "reruns"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Ignore:
    """Change nothing."""

    kind: Literal["ignore"] = "ignore"


# Actions on the job


@dataclass(frozen=True, slots=True)
class AcceptJob:
    """Create the job and the replicas of its first attempt."""

    job: Job
    kind: Literal["accept_job"] = "accept_job"


@dataclass(frozen=True, slots=True)
class BeginPreparing:
    """Move the job from QUEUED to PREPARING."""

    kind: Literal["begin_preparing"] = "begin_preparing"


@dataclass(frozen=True, slots=True)
class BeginRunning:
    """Move the job from PREPARING to RUNNING."""

    kind: Literal["begin_running"] = "begin_running"


@dataclass(frozen=True, slots=True)
class ContinueProvisioning:
    """Begin the next provisioning round, in the next zone or in the same one."""

    zone_index: int
    round: int
    since: datetime | None = None
    """First capacity error of this search for capacity."""
    next_at: datetime | None = None
    """Earliest time of the next request; None: at once."""
    lost: str | None = None
    """Replica whose VM was lost before its agent reported, and is requested again."""
    only_optional: bool = False
    """Whether only optional VMs are missing: the pause until `next_at` does not hold for required ones."""
    kind: Literal["continue_provisioning"] = "continue_provisioning"


@dataclass(frozen=True, slots=True)
class RerunJob:
    """Begin the job's next attempt, on the VMs that exist."""

    charge: Budget
    zone_index: int | None = None
    """Zone that the whole gang moves to for lack of capacity; None: it stays."""
    lost: str | None = None
    """Replica whose VM was lost and is replaced, where one restart reruns the whole job."""
    is_vm_taken: bool = False
    """Whether that VM was taken away, and not given up."""
    blame: Blame = Blame.OWN
    """Party at fault by the evidence of the charged exit."""
    reporter: str | None = None
    """Replica whose exit reruns the job, if one does."""
    reporter_vm: str | None = None
    """Google's numeric id of the VM that reported this exit. The report that it was ready may arrive later."""
    quick_failure: str | None = None
    """Replica whose program failed soon after its start, and caused the rerun."""
    kind: Literal["rerun_job"] = "rerun_job"


@dataclass(frozen=True, slots=True)
class SucceedJob:
    """Complete the primary replica and the job."""

    replica: str
    measurement: Measurement | None = None
    kind: Literal["succeed_job"] = "succeed_job"


@dataclass(frozen=True, slots=True)
class FailJob:
    """End the job as FAILED."""

    message: str
    """The job's errorMessage, in the service's words."""
    replica: str | None = None
    """The replica whose exit ended the job, if one did."""
    kind: Literal["fail_job"] = "fail_job"


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End the job as CANCELLED."""

    message: str
    """The job's errorMessage, in the service's words."""
    kind: Literal["cancel_job"] = "cancel_job"


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Replace all labels of the job."""

    labels: tuple[Label, ...]
    kind: Literal["set_labels"] = "set_labels"


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Hide the job from its users. Its documents stay: the id is used up, and the ledger keeps the history."""

    kind: Literal["delete_job"] = "delete_job"


@dataclass(frozen=True, slots=True)
class CompleteTuning:
    """End a tuning job as SUCCEEDED."""

    kind: Literal["complete_tuning"] = "complete_tuning"


# Actions on one replica


@dataclass(frozen=True, slots=True)
class MarkReady:
    """Move the replica to RUNNING."""

    replica: str
    instance_id: str
    """Google's numeric id of the VM that reported."""
    started_at: datetime
    """When the program started, by the agent's clock."""
    host_vm: HostVm | None = None
    """The machine of the slice's host that reported."""
    kind: Literal["mark_ready"] = "mark_ready"


@dataclass(frozen=True, slots=True)
class MarkHostReady:
    """Record that one host of a slice is ready, while others are not."""

    replica: str
    host: int
    instance_id: str
    """Google's id of the slice's node."""
    host_vm: HostVm | None = None
    """The machine of the host."""
    kind: Literal["mark_host_ready"] = "mark_host_ready"


@dataclass(frozen=True, slots=True)
class RecordCompletion:
    """Move the replica to COMPLETED."""

    replica: str
    done_at: datetime
    """When it exited 0, by the agent's clock."""
    kind: Literal["record_completion"] = "record_completion"


@dataclass(frozen=True, slots=True)
class RecordHostDone:
    """Record that one host of a slice exited 0, while others run."""

    replica: str
    host: int
    measurement: Measurement | None = None
    kind: Literal["record_host_done"] = "record_host_done"


@dataclass(frozen=True, slots=True)
class ReactivateReplica:
    """Order the next incarnation of a completed replica, on another VM of the same name. Always free."""

    replica: str
    kind: Literal["reactivate_replica"] = "reactivate_replica"


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """Order the replica's next incarnation, in the same VM: after a pause if the program keeps failing quickly."""

    replica: str
    ended: PastIncarnation
    charge: Budget
    instance_id: str
    """Google's numeric id of the VM that reported the exit. The report that it was ready may arrive later."""
    is_quick_failure: bool = False
    """Whether the program failed soon after its start."""
    measurement: Measurement | None = None
    kind: Literal["restart_replica"] = "restart_replica"


@dataclass(frozen=True, slots=True)
class HoldReplica:
    """Order the replica's next incarnation, in the same VM, as soon as no peer is down. Always free."""

    replica: str
    charged_to: str
    """The peer whose loss caused the exit."""
    instance_id: str
    """Google's numeric id of the VM that reported the exit. The report that it was ready may arrive later."""
    measurement: Measurement | None = None
    kind: Literal["hold_replica"] = "hold_replica"


@dataclass(frozen=True, slots=True)
class ReplaceVm:
    """Order the replica's next incarnation, on another VM of the same name. Always free."""

    replica: str
    ended: PastIncarnation
    refunds_rerun: bool = False
    """Whether this loss explains the last charged rerun."""
    is_startup_timeout: bool = False
    """Whether the VM is replaced because its agent never reported."""
    is_vm_taken: bool = False
    """Whether the VM was taken away, and not given up."""
    is_early: bool = False
    """Whether the VM was lost before its agent reported."""
    measurement: Measurement | None = None
    kind: Literal["replace_vm"] = "replace_vm"


@dataclass(frozen=True, slots=True)
class RefundCharge:
    """Refund a charged restart of the replica, which the loss of a peer explains."""

    replica: str
    incarnation: int
    """The incarnation that the charged exit ended."""
    charged_to: str
    """The peer whose loss caused the exit."""
    kind: Literal["refund_charge"] = "refund_charge"


# Actions on a trial of a tuning job


@dataclass(frozen=True, slots=True)
class BeginTrial:
    """Add the next trial."""

    number: int
    values: tuple[str, ...]
    """Values in the order of the parameters."""
    kind: Literal["begin_trial"] = "begin_trial"


@dataclass(frozen=True, slots=True)
class MarkTrialRunning:
    """Record that the trial's job runs."""

    number: int
    started_at: datetime
    kind: Literal["mark_trial_running"] = "mark_trial_running"


@dataclass(frozen=True, slots=True)
class RecordMeasurements:
    """Add measurements of running trials to their curves."""

    reports: tuple[TrialReport, ...]
    kind: Literal["record_measurements"] = "record_measurements"


@dataclass(frozen=True, slots=True)
class StopTrial:
    """Order that the trial's job is stopped early."""

    number: int
    kind: Literal["stop_trial"] = "stop_trial"


@dataclass(frozen=True, slots=True)
class EndTrial:
    """Record how the trial's job ended."""

    number: int
    state: TrialState
    ended_at: datetime
    measurement: Measurement | None = None
    error: str = ""
    """Error message of a failed trial."""
    kind: Literal["end_trial"] = "end_trial"


JobAction = (
    BeginPreparing
    | BeginRunning
    | ContinueProvisioning
    | RerunJob
    | SucceedJob
    | FailJob
    | CancelJob
    | SetLabels
    | DeleteJob
    | CompleteTuning
)
ReplicaAction = (
    MarkReady
    | MarkHostReady
    | RecordCompletion
    | RecordHostDone
    | ReactivateReplica
    | RestartReplica
    | HoldReplica
    | ReplaceVm
    | RefundCharge
)
TrialAction = BeginTrial | MarkTrialRunning | RecordMeasurements | StopTrial | EndTrial
Action = Ignore | AcceptJob | JobAction | ReplicaAction | TrialAction
