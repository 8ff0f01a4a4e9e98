"""One replica in one attempt: its state, its budgets, and when what happened to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.core.model.exit_policy import Blame
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import Measurement


class ReplicaState(StrEnum):
    """State of a replica.

    RESTARTING and REPLACING mean *down for a cause of its own*: peers that fail meanwhile are collateral and wait in
    HELD. HELD is not such a cause, so two replicas never wait for each other.
    """

    WAITING = "WAITING"  # its VM is desired; the agent has not reported yet
    RUNNING = "RUNNING"  # the agent reported this incarnation ready
    RESTARTING = "RESTARTING"  # the next incarnation was ordered in the same VM
    REPLACING = "REPLACING"  # another VM of the same name was ordered
    HELD = "HELD"  # collateral exit; the next incarnation starts when no peer is down
    COMPLETED = "COMPLETED"  # exited 0

    @property
    def is_down(self) -> bool:
        return self in (ReplicaState.RESTARTING, ReplicaState.REPLACING)


@dataclass(frozen=True, slots=True)
class LastExit:
    """The latest charged exit of a replica. Rule 8 compares the next exit with it."""

    incarnation: int
    exit_status: int | None
    """None if a signal ended the program, or if the VM rebooted."""
    signal: int | None
    signature: str | None
    """`ProgramError.signature` of the exit, if its output contained a traceback."""
    blame: Blame = Blame.UNKNOWN


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica in one attempt. All times are the `now` of the event that caused the change."""

    attempt: int
    replica_id: ReplicaId
    state: ReplicaState = ReplicaState.WAITING
    incarnation: int = 1
    """Incarnation within the attempt."""
    vm_generation: int = 1
    """Which VM of the replica this is. It grows over all attempts of the job."""
    instance_id: str | None = None
    """Google's numeric id of the present VM; None until the agent has reported from it."""
    restarts_used: int = 0
    """Restarts in this attempt that were charged to the replica."""
    replaced: int = 0
    """How often its VM was replaced in this attempt."""
    collateral: int = 0
    """Its collateral exits in this attempt."""
    startup_timeouts: int = 0
    """Startup timeouts since the agent last reported."""
    ready_at: datetime | None = None
    """When the present incarnation became ready; while the replica is down, the last one that did."""
    lost_at: datetime | None = None
    """When an incarnation last ended for a cause of its own."""
    forgiven_at: datetime | None = None
    """When an incarnation last ended because of a peer's loss."""
    charged_at: datetime | None = None
    """When a restart was last charged."""
    last_exit: LastExit | None = None
    ordered_at: datetime | None = None
    """When the present incarnation was ordered."""
    done_at: datetime | None = None
    """When it exited 0."""
    hosts_ready: tuple[int, ...] = ()
    """Hosts of its TPU slice that are ready in this incarnation."""
    hosts_done: tuple[int, ...] = ()
    """Hosts of its TPU slice that exited 0 in this incarnation."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that its program reported."""
    version: int = 1
    """Number of writes of this document."""

    @property
    def key(self) -> str:
        return replica_key(self.attempt, self.replica_id)

    @property
    def ever_ready(self) -> bool:
        return self.ready_at is not None

    @property
    def ever_lost(self) -> bool:
        return self.lost_at is not None


def replica_key(attempt: int, replica_id: ReplicaId) -> str:
    """Return the key of the replica's document within its job."""
    return f"{attempt}-{replica_id}"
