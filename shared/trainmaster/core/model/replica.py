"""One replica in one attempt: its state, its budgets and its past incarnations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import Measurement


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


class EndKind(StrEnum):
    """The cause that ended an incarnation."""

    EXIT = "exit"  # the program exited, or a signal ended it
    REBOOT = "reboot"  # the VM rebooted, or the agent died, under the program
    VM_LOST = "vm_lost"  # the VM was lost or given up
    STALL = "stall"  # the program printed nothing for too long, and the agent ended it


@dataclass(frozen=True, slots=True)
class PastIncarnation:
    """An incarnation that ended for a cause of its own: a charged exit, a reboot, or the loss of its VM.

    Its times are those of the events. They do not depend on when, or in which order, the events were judged.
    """

    number: int
    """Number of the incarnation within the attempt."""
    kind: EndKind
    ended_at: datetime
    """When it ended. For a lost VM: when the loss was reported, which may be up to `LOSS_REPORT_DELAY_MAX` later."""
    started_at: datetime | None = None
    """When its program started; if that was not reported, when it was ordered."""
    back_at: datetime | None = None
    """When a later incarnation of the replica started. None: not yet."""
    is_charged: bool = False
    """Whether it used up a restart, or one of the restarts after stalls, that has not been refunded."""
    exit_status: int | None = None
    signal: int | None = None
    signature: str | None = None
    """`ProgramError.signature` of the exit, if its output contained a traceback."""
    blame: Blame = Blame.UNKNOWN
    """Party at fault by the evidence of the exit."""
    bug: str | None = None
    """Signature that the next exit must repeat to prove a bug (`core.rules.repetition`); None if none can."""


PAST_KEPT: Final = 10
"""Past incarnations that a replica keeps. Only the latest can explain, or be explained by, what happens now."""


NOT_BACK: Final = datetime(9999, 1, 1, tzinfo=UTC)
"""The time of return of a replica that is still away. Any moment compares as earlier."""


@dataclass(frozen=True, slots=True)
class HostVm:
    """The machine that is a host of a TPU slice."""

    host: int
    vm: str
    """`PROJECT/INSTANCE_ID`, as Google signed it in the host's identity token."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica in one attempt. Times are the `now` of the event that caused the change, unless stated otherwise."""

    attempt: int
    replica_id: ReplicaId
    state: ReplicaState = ReplicaState.WAITING
    incarnation: int = 1
    """Incarnation within the attempt."""
    vm_generation: int = 1
    """Which VM of the replica this is. It grows whenever another VM is requested, over all attempts of the job."""
    instance_id: str | None = None
    """Google's numeric id of the current VM; None until the agent has reported from it. It never changes within a VM
    generation."""
    restarts_used: int = 0
    """Restarts in this attempt that were charged to the replica."""
    quick_failures: int = 0
    """Charged exits in a row, over all attempts, each soon after the program's start. They lengthen the pause before
    the next start."""
    replaced: int = 0
    """How often its VM was replaced in this attempt."""
    vms_lost: int = 0
    """VMs that were taken away from it, over all attempts. Spot VMs are requested until `Plan.on_demand_after`."""
    collateral: int = 0
    """Its collateral exits in this attempt."""
    startup_timeouts: int = 0
    """Startup timeouts since the agent last reported."""
    vm_since: datetime | None = None
    """When the agent of the current VM first reported. None: it has not, or an earlier release recorded the report."""
    early_losses: int = 0
    """VMs lost early in a row, over all attempts: before their agents reported, or soon after."""
    early_losses_in_zone: int = 0
    """The part of `early_losses` in the current zone."""
    ready_at: datetime | None = None
    """When the current incarnation became ready; while it is down, when the last ready one did."""
    started_at: datetime | None = None
    """When the current incarnation's program started, by the agent's clock. None: its start was not reported."""
    lost_at: datetime | None = None
    """When an incarnation last ended for a cause of its own."""
    past: tuple[PastIncarnation, ...] = ()
    """The latest `PAST_KEPT` incarnations that ended for a cause of their own, oldest first."""
    ordered_at: datetime | None = None
    """When the current incarnation was ordered."""
    done_at: datetime | None = None
    """When it exited 0, by the agent's clock."""
    hosts_ready: tuple[int, ...] = ()
    """Hosts of its TPU slice that are ready in this incarnation."""
    hosts_done: tuple[int, ...] = ()
    """Hosts of its TPU slice that exited 0 in this incarnation."""
    host_vms: tuple[HostVm, ...] = ()
    """The machines that first reported ready as hosts of its TPU slice. Events from other machines are refused."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that its program reported."""
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
        """Whether another VM was ordered and its agent has not reported: the VM may not exist yet."""
        return self.state in (ReplicaState.WAITING, ReplicaState.REPLACING) and self.instance_id is None

    @property
    def previous(self) -> PastIncarnation | None:
        """The previous incarnation, if it ended for a cause of its own."""
        is_previous = bool(self.past) and self.past[-1].number == self.incarnation - 1
        return self.past[-1] if is_previous else None

    @property
    def ever_ready(self) -> bool:
        return self.ready_at is not None

    @property
    def lost_until(self) -> datetime | None:
        """Until when its last loss other than an exit may explain exits of peers: see `_away_until`."""
        return _away_until(ended for ended in self.past if ended.kind is not EndKind.EXIT)

    @property
    def failed_until(self) -> datetime | None:
        """Until when its last charged exit may explain exits of peers: see `_away_until`."""
        return _away_until(ended for ended in self.past if ended.kind is EndKind.EXIT and ended.is_charged)


def _away_until(losses: Iterable[PastIncarnation]) -> datetime | None:
    """Return when the replica was back after the last of these losses; `NOT_BACK` if it is not; None if there are none.

    A loss explains no exit of a program that started later (`trainmaster.core.rules.attribution.explains`).
    """
    return max((loss.back_at or NOT_BACK for loss in losses), default=None)


def replica_key(attempt: int, replica_id: ReplicaId) -> str:
    """Return the key of the replica's document within its job."""
    return f"{attempt}-{replica_id}"
