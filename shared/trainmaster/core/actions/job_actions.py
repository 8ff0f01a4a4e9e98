"""Actions on the job as a whole: what decisions change, which `core.transitions` applies.

The gang is the VMs of a job that are requested together; each request is a placement round. The
other rounds are the common runs of the members of a synchronous job: a round is held until all
members are ready. "As in the placement" refers to the fields of `core.model.job.Placement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from trainmaster.core.actions.replica_actions import Budget, ReplaceVm
from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.job import Job, Label
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.machine_set import Taken
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import SaveRequest
from trainmaster.core.model.tuning import Measurement


@dataclass(frozen=True, slots=True)
class AcceptJob:
    """Create the job and the replicas of its first attempt."""

    job: Job
    kind: Literal["accept_job"] = "accept_job"


@dataclass(frozen=True, slots=True)
class BeginPreparing:
    """Move the job from QUEUED to PREPARING."""

    requests_vms: bool
    """Whether the job's VMs must be requested."""
    order: tuple[int, ...]
    """The first pass: indexes into the plan's zones, in the order of the requests.

    Empty: the job is a tuning job, which has no VMs of its own.
    """
    next_at: datetime | None = None
    """Earliest time of the first request; None: at once."""
    taken: Taken | None = None
    """The kept machines that the job takes. Not stored if it is None."""
    kind: Literal["begin_preparing"] = "begin_preparing"


@dataclass(frozen=True, slots=True)
class BeginRunning:
    """Move the job from PREPARING to RUNNING."""

    round: int | None = None
    """The held round of a synchronous job, which begins on all members; None: the job has no
    rounds.
    """
    kind: Literal["begin_running"] = "begin_running"


@dataclass(frozen=True, slots=True)
class ContinueProvisioning:
    """Begin the next placement round, in the next zone or in the same one."""

    zone_index: int
    """Index into the plan's zones."""
    round: int
    """Number of the new placement round."""
    since: datetime | None = None
    """First capacity error of this search for capacity."""
    next_at: datetime | None = None
    """Earliest time of the next request; None: at once."""
    replacement: ReplaceVm | None = None
    """Another VM for the replica whose wasted machines move the gang; None: no VM was lost."""
    only_optional: bool = False
    """Whether only optional VMs are missing. Required VMs do not wait until `next_at`."""
    problem: str = ""
    """The capacity error in a few words; empty: VMs were lost."""
    blocked_since: datetime | None = None
    """As in the placement."""
    remaining: tuple[int, ...] | None = None
    """As in the placement."""
    floor: int | None = None
    """The placement's next floor of VM generations, if the gang moves to another zone.

    None: it stays.
    """
    kind: Literal["continue_provisioning"] = "continue_provisioning"


@dataclass(frozen=True, slots=True)
class StopRound:
    """Hold the next round: every member stops, and waits until all are ready."""

    number: int
    """The round that ends."""
    replica: str
    """Member whose end, or whose VM's loss, ends the round."""
    replacement: ReplaceVm | None = None
    """Another VM for this member; None: it keeps its VM."""
    kind: Literal["stop_round"] = "stop_round"


@dataclass(frozen=True, slots=True)
class SaveRound:
    """Ask the programs to save: direct those whose agents are not asked by another one."""

    number: int
    """The round."""
    saving: SaveRequest
    kind: Literal["save_round"] = "save_round"


@dataclass(frozen=True, slots=True)
class BeginRound:
    """Start the held round on all members, and charge the end of the round before."""

    number: int
    """The round that begins."""
    replica: str | None = None
    """Member whose end decided about the round before; None: no end of a member is known, as after
    a rerun.
    """
    charge: Budget = Budget.FREE
    """Limit of this member that the end is charged to."""
    is_quick_failure: bool = False
    """Whether its program failed soon after its start."""
    bug: str | None = None
    """Signature that the next verdict must repeat to prove a bug."""
    without: tuple[ReplicaId, ...] = ()
    """Members that the round goes without."""
    failing: FailureRow | None = None
    """Failures in a row, with this one; None: no failure of a program ended the round."""
    kind: Literal["begin_round"] = "begin_round"


@dataclass(frozen=True, slots=True)
class RerunJob:
    """Begin the job's next attempt, on the VMs that exist."""

    charge: Budget
    """Limit that the rerun is charged to."""
    zone_index: int | None = None
    """Zone that the whole gang moves to for lack of capacity; None: it stays."""
    remaining: tuple[int, ...] | None = None
    """As in the placement, for a gang that moves."""
    lost: str | None = None
    """Replica whose VM is replaced: it was lost, or its replica keeps failing on it."""
    is_vm_taken: bool = False
    """Whether that VM was lost; False: Trainmaster gave it up."""
    wasted: int = 0
    """`Replica.wasted` of that replica from now on."""
    next_at: datetime | None = None
    """Earliest time of the next request for VMs, after several wasted machines; None: at once."""
    reporter: str | None = None
    """Replica whose exit reruns the job, if one does."""
    quick_failure: str | None = None
    """Replica whose program failed soon after its start, and caused the rerun."""
    bug: str | None = None
    """Signature that the next failure of the reporter must repeat to prove a bug; None: no failure
    can.
    """
    failing: FailureRow | None = None
    """Failures of the reporter in a row, with this one; None: the exit was no failure of its
    program.
    """
    kind: Literal["rerun_job"] = "rerun_job"


@dataclass(frozen=True, slots=True)
class SucceedJob:
    """Complete the primary replica and the job."""

    replica: str
    measurement: Measurement | None = None
    notes: tuple[str, ...] = ()
    """Reasons to doubt the success of the job (`core.rules.success_notes`)."""
    progress: LastProgress | None = None
    """How far the primary's program was at its end; None: unknown."""
    kind: Literal["succeed_job"] = "succeed_job"


@dataclass(frozen=True, slots=True)
class FailJob:
    """End the job as FAILED."""

    message: str
    """The job's errorMessage, in AI Platform Training's words."""
    replica: str | None = None
    """The replica whose exit ended the job, if one did."""
    progress: LastProgress | None = None
    """How far the primary's program was at its last end; None: unknown."""
    kind: Literal["fail_job"] = "fail_job"


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End the job as CANCELLED."""

    message: str
    """The job's errorMessage, in AI Platform Training's words."""
    kind: Literal["cancel_job"] = "cancel_job"


@dataclass(frozen=True, slots=True)
class NoteCost:
    """Note what the job has cost at most, and when that is computed next."""

    next_at: datetime
    spent: Decimal
    """In the currency of the cap."""
    computed_at: datetime
    kind: Literal["note_cost"] = "note_cost"


@dataclass(frozen=True, slots=True)
class NoteEmptyZones:
    """Note that no program of the job runs in any zone that it has left."""

    kind: Literal["note_empty_zones"] = "note_empty_zones"


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Replace all labels of the job."""

    labels: tuple[Label, ...]
    kind: Literal["set_labels"] = "set_labels"


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Hide the job from its users.

    Its documents stay: its id cannot be used again, and its ledger keeps the history.
    """

    kind: Literal["delete_job"] = "delete_job"


@dataclass(frozen=True, slots=True)
class ReleaseMachines:
    """Release the machines that the job keeps: no other job can take them, and they are deleted."""

    kind: Literal["release_machines"] = "release_machines"


@dataclass(frozen=True, slots=True)
class DropMachines:
    """Take VMs out of the machines that the job keeps: they are lost."""

    instance_ids: tuple[str, ...]
    kind: Literal["drop_machines"] = "drop_machines"


@dataclass(frozen=True, slots=True)
class CompleteTuning:
    """End a tuning job as SUCCEEDED."""

    kind: Literal["complete_tuning"] = "complete_tuning"


JobAction = (
    BeginPreparing
    | BeginRunning
    | ContinueProvisioning
    | StopRound
    | SaveRound
    | BeginRound
    | RerunJob
    | SucceedJob
    | FailJob
    | CancelJob
    | NoteCost
    | NoteEmptyZones
    | SetLabels
    | DeleteJob
    | ReleaseMachines
    | DropMachines
    | CompleteTuning
)
