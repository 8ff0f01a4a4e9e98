"""Actions on one replica, which is named by the key of its document."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from trainmaster.core.actions.budget import Budget
from trainmaster.core.model.replica import HostVm, PastIncarnation
from trainmaster.core.model.tuning import Measurement


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
    vm_since: datetime | None = None
    """When the agent first reported from this VM. None in entries of earlier releases: the report ended the series of
    early losses."""
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
    """The incarnation that the exit ended."""
    charge: Budget
    """Limit that the restart is charged to."""
    instance_id: str
    """Google's numeric id of the VM that reported the exit. The report that it was ready may arrive later."""
    is_quick_failure: bool = False
    """Whether the program failed soon after its start."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
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
    """The incarnation that ended with the VM."""
    refunds_rerun: bool = False
    """Whether this loss explains the last charged rerun."""
    is_startup_timeout: bool = False
    """Whether the VM is replaced because its agent never reported."""
    is_vm_taken: bool = False
    """Whether the VM was lost; False: Trainmaster gave it up, because its agent did not report or its zone was
    wrong."""
    is_early: bool = False
    """Whether the VM was lost before its agent reported, or soon after."""
    next_at: datetime | None = None
    """Earliest time of the next request for VMs, after several early losses in a row; None: it stays."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
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
