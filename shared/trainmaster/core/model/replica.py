"""One replica in one attempt: its state and its budgets.

A *member* is a replica of a synchronous job: all members run in the same *round*, and when one of
them ends, all stop, and the next round is *held* until every member has reported that it is ready.
Other replicas are judged alone. An *attempt* is one run of the whole job, an *incarnation* one run
of the replica's program, and a *VM generation* one VM of the replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainmaster.core.model.failure_row import FailureRow
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import Measurement


class ReplicaState(StrEnum):
    """State of a replica.

    A member of a round keeps its state while the round is held, until it reports.
    """

    WAITING = "WAITING"  # its VM is desired; the agent has not reported yet
    RUNNING = "RUNNING"  # the agent reported this incarnation ready
    RESTARTING = "RESTARTING"  # the next incarnation was ordered in the same VM
    REPLACING = "REPLACING"  # another VM of the same name was ordered
    COMPLETED = "COMPLETED"  # exited 0, or was given up because the job may run without it


@dataclass(frozen=True, slots=True)
class HostVm:
    """The machine that is a host of a TPU slice."""

    host: int
    vm: str
    """`PROJECT/INSTANCE_ID`, as Google signed it in the host's identity token."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica in one attempt.

    Times are the `now` of the event that caused the change, unless stated otherwise.
    """

    attempt: int
    replica_id: ReplicaId
    state: ReplicaState = ReplicaState.WAITING
    incarnation: int = 1
    """Number of the run of its program within the attempt.

    A member counts no runs of its own: it has the number of the round that it was last ready for.
    """
    vm_generation: int = 1
    """Which VM of the replica this is.

    It grows whenever another VM is requested, over all attempts of the job.
    """
    instance_id: str | None = None
    """Google's numeric id of the current VM; None until the agent has reported from it.

    It never changes within a VM generation.
    """
    restarts: tuple[datetime, ...] = ()
    """When restarts were charged to the replica in this attempt, without those before the exit
    policy's window.
    """
    quick_failures: int = 0
    """Failures in a row soon after the start, of a replica that is judged alone.

    A round has its own count.
    """
    bug: str | None = None
    """Signature of its last failure, if that looked like a bug of the program.

    The same signature again ends the job. A round has its own.
    """
    replaced: int = 0
    """How often its VM was replaced in this attempt."""
    vms_lost: int = 0
    """VMs that were taken away from it, over all attempts.

    It decides how the next VM is bought (`Purchase.price_after`).
    """
    vm_since: datetime | None = None
    """When the agent of the current VM first reported; None: it has not."""
    wasted: int = 0
    """Machines in a row, over all attempts, that gave it no ten useful minutes: lost, silent, unfit
    or not set up. `core.rules.wasted` counts them.
    """
    next_at: datetime | None = None
    """Earliest time of the request for its next VM, after several wasted machines; None: at once.

    Members wait together: `Placement.next_at`.
    """
    ready_at: datetime | None = None
    """When its last incarnation that was ready became so.

    It stays while the replica is down. None: none has been ready in this attempt, or the whole gang
    has moved to another place since.
    """
    ordered_at: datetime | None = None
    """When the current incarnation was ordered."""
    done_at: datetime | None = None
    """When it exited 0, by the agent's clock."""
    hosts_ready: tuple[int, ...] = ()
    """Hosts of its TPU slice that are ready in this incarnation."""
    hosts_done: tuple[int, ...] = ()
    """Hosts of its TPU slice that exited 0 in this incarnation."""
    host_vms: tuple[HostVm, ...] = ()
    """The machines that first reported ready as hosts of its TPU slice.

    Events from other machines are refused.
    """
    has_ended: bool = False
    """Of a member: whether its program failed by itself in the round before.

    A program that was stopped because another member failed, or that exited 0, does not count: the
    member to be charged is one that ended by itself.
    """
    left_peers: bool = False
    """Of a member: whether its ranks had exited 0 before the round ended, while their launcher
    waited for those of other members.
    """
    round_reported: bool = False
    """Of a member: whether it has reported from the VM that it had in the round before this
    incarnation. A later loss of that VM changes nothing about the round.
    """
    measurement: Measurement | None = None
    """In a trial, the last measurement that its program reported."""
    failing: FailureRow | None = None
    """Its failures in a row, of a replica that is judged alone. A round has its own row."""
    version: int = 1
    """Number of writes of this document."""

    @property
    def key(self) -> str:
        return replica_key(self.attempt, self.replica_id)

    def host_vm(self, host: int) -> str | None:
        """Return the machine that first reported ready as this host; None: none has."""
        return next((host_vm.vm for host_vm in self.host_vms if host_vm.host == host), None)

    @property
    def awaits_vm(self) -> bool:
        """Whether another VM was ordered and its agent has not reported: the VM may not
        exist yet.
        """
        return (
            self.state in (ReplicaState.WAITING, ReplicaState.REPLACING)
            and self.instance_id is None
        )

    @property
    def restarts_used(self) -> int:
        """Restarts in this attempt that were charged to the replica, and count."""
        return len(self.restarts)

    @property
    def ready_for(self) -> str | None:
        """The round that a member is ready for, as `ATTEMPT-ROUND`; None: it is not ready, or not
        in the cluster.
        """
        is_ready = self.state is ReplicaState.RUNNING and self.replica_id.is_in_cluster
        return f"{self.attempt}-{self.incarnation}" if is_ready else None

    @property
    def ever_ready(self) -> bool:
        return self.ready_at is not None


def replica_key(attempt: int, replica_id: ReplicaId) -> str:
    """Return the key of the replica's document within its job."""
    return f"{attempt}-{replica_id}"
