"""Actions on one replica, which is named by the key of its document, and the limits that actions
are charged to.

A rule decides on an action, and `core.transitions` applies it. An incarnation is one execution of
the replica's program. A member is a replica of a synchronous job, and a round one common run of all
members.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.replica import HostVm
from trainmaster.core.model.tuning import Measurement


class Budget(StrEnum):
    """The limit that an action is charged to."""

    FREE = "free"
    RESTARTS = "restarts"
    RERUNS = "reruns"


@dataclass(frozen=True, slots=True)
class MarkReady:
    """Move the replica to RUNNING."""

    replica: str
    instance_id: str
    """Google's numeric id of the VM that reported."""
    vm_since: datetime
    """When the agent first reported from this VM."""
    host_vm: HostVm | None = None
    """The machine of the slice's host that reported."""
    round: int | None = None
    """For a member: the round that it is ready for."""
    has_kept_vm: bool = False
    """For a member: whether it has the VM that it had when this round was ordered."""
    has_ended: bool = False
    """For a member: whether its program failed by itself in the round before."""
    left_peers: bool = False
    """For a member: whether its ranks had exited 0 before the round ended, while their launcher
    waited for those of other members.
    """
    measurement: Measurement | None = None
    """In a trial, the last measurement of the program that ended on this VM."""
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
    round: int | None = None
    """For a member: the round that it is ready for."""
    has_kept_vm: bool = False
    """For a member: whether it has the VM that it had when this round was ordered."""
    has_ended: bool = False
    """For a member: whether its program failed by itself in the round before."""
    left_peers: bool = False
    """For a member: whether its ranks had exited 0 before the round ended, while their launcher
    waited for those of other members.
    """
    kind: Literal["mark_host_ready"] = "mark_host_ready"


@dataclass(frozen=True, slots=True)
class RecordCompletion:
    """Move the replica to COMPLETED, or record that it has lost its VM since."""

    replica: str
    done_at: datetime
    """When it exited, by the agent's clock."""
    is_vm_lost: bool = False
    """Whether the VM is lost. Only jobs that keep their machines have a use for it."""
    kind: Literal["record_completion"] = "record_completion"


@dataclass(frozen=True, slots=True)
class RecordHostDone:
    """Record that one host of a slice exited 0, while others run."""

    replica: str
    host: int
    measurement: Measurement | None = None
    kind: Literal["record_host_done"] = "record_host_done"


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """Order the replica's next incarnation, in the same VM: after a pause if the program keeps
    failing quickly.
    """

    replica: str
    charge: Budget
    """Limit that the restart is charged to."""
    is_quick_failure: bool = False
    """Whether the program failed soon after its start."""
    bug: str | None = None
    """Signature that the next exit must repeat to prove a bug."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
    failing: FailureRow | None = None
    """Failures in a row, with this one; None: the exit was no failure of the program."""
    excused: tuple[datetime, ...] = ()
    """Earlier restarts that no longer count: losses of VMs at the same time explain them."""
    kind: Literal["restart_replica"] = "restart_replica"


@dataclass(frozen=True, slots=True)
class ReplaceVm:
    """Order another VM of the same name, for the replica's next incarnation or for the round that
    is held.
    """

    replica: str
    charge: Budget = Budget.FREE
    """Limit that the replacement is charged to."""
    is_vm_taken: bool = False
    """Whether the VM was lost; False: Trainmaster gave it up."""
    has_run: bool = False
    """Whether the program had run on it, as its exit tells; False: that is not known."""
    wasted: int = 0
    """Number of VMs in a row, with this one, that gave the replica no ten useful minutes; 0: this
    one did, which ends the row. It becomes `Replica.wasted`.
    """
    next_at: datetime | None = None
    """Earliest time of the request for the VM, after several wasted machines. For a member, it
    holds for all VMs of the job. None: at once, or when a pause of the gang that has begun is over.
    """
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
    kind: Literal["replace_vm"] = "replace_vm"


ReplicaAction = (
    MarkReady | MarkHostReady | RecordCompletion | RecordHostDone | RestartReplica | ReplaceVm
)
