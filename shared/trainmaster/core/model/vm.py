"""VMs as they are observed, and the directive that each of them carries.

Jobs may use the same VMs, a machine set, one after the other; each is the holder for a time, which
has a number, the tenure.

An attempt is one run of the whole job, and an incarnation one run of a replica's program in it. The
members of a synchronous job start together, in rounds; their incarnation is the round.

A TPU node is a VM here: one replica runs on it, whatever number of hosts it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from trainmaster.core.model.replica_id import ReplicaId


class VmStatus(StrEnum):
    """State of a VM or TPU node.

    The finer states of Compute Engine and Cloud TPU map onto these.
    """

    CREATING = "CREATING"  # PENDING, PROVISIONING, STAGING, REPAIRING
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # STOPPING, PENDING_STOP, SUSPENDING, DEPROVISIONING, or being deleted
    STOPPED = "STOPPED"  # TERMINATED, STOPPED, SUSPENDED
    QUEUED = (
        "QUEUED"  # a request in Cloud TPU's queue, perhaps for days; its metadata cannot be changed
    )
    REFUSED = (
        "REFUSED"  # a request that Cloud TPU's queue refused; creating it again returns the reason
    )


class LossCause(StrEnum):
    """Reason why a replica loses its VM."""

    MAINTENANCE = "maintenance"
    PREEMPTION = "preemption"
    HOST_ERROR = "host_error"
    GONE = "gone"  # it is missing or stopped, and no event reported why
    STARTUP_TIMEOUT = (
        "startup_timeout"  # it runs, and its agent never reported the ordered incarnation
    )
    AGENT_SILENT = "agent_silent"  # it runs, and its agent has written no heartbeat for too long


class DirectiveAction(StrEnum):
    """Action of the agent on the directive's incarnation."""

    RUN = "run"
    SAVE = "save"  # run, and save now
    HOLD = "hold"  # stop the previous incarnation and wait
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Directive:
    """An order of the stored state to an agent, written to the VM's metadata."""

    attempt: int
    """The job's attempt."""
    incarnation: int
    """The incarnation within the attempt that the action is about."""
    action: DirectiveAction
    slices: tuple[str, ...] = ()
    """Addresses of the job's TPU slices in rank order (`core.reconcile.slice_addresses`).

    They do not count in `order`.
    """
    pause_s: int = 0
    """Seconds that the agent waits before it starts the incarnation.

    They do not count in `order`.
    """
    save_number: int = 0
    """With SAVE: number of the request (`core.model.round.SaveRequest`)."""
    until: int = 0
    """With SAVE: when the save must have ended, in seconds since 1970.

    It does not count in `order`.
    """
    asks_peers: bool = False
    """With SAVE: whether the agent asks the other members.

    It does not count in `order`.
    """
    without: tuple[int, ...] = ()
    """Ranks of the members that the round goes without. They do not count in `order`."""
    paid_until: int = 0
    """When the VM ends itself, in seconds since 1970; 0: never.

    It does not count in `order`, and grows while functions run.
    """

    tenure: int = 1
    """Number of the time in which the job holds its machine set."""

    @property
    def order(self) -> tuple[int, int, int, int, int]:
        """Position among a replica's directives, which only move forward: an incarnation is held
        before it runs, and may be asked to save several times.
        """
        rank = {
            DirectiveAction.HOLD: 0,
            DirectiveAction.RUN: 1,
            DirectiveAction.SAVE: 2,
            DirectiveAction.STOP: 3,
        }
        return (*self.execution, rank[self.action], self.save_number)

    @property
    def execution(self) -> tuple[int, int, int]:
        """The execution of the program that the directive is about, later ones being larger."""
        return self.tenure, self.attempt, self.incarnation

    def to_metadata(self) -> dict[str, object]:
        """Return the value of the metadata entry as JSON. Source: docs/interfaces.md section 3."""
        metadata: dict[str, object] = {
            "attempt": self.attempt,
            "incarnation": self.incarnation,
            "action": self.action.value,
        }
        if self.slices:
            metadata["slices"] = list(self.slices)
        if self.save_number:
            metadata["save_number"] = self.save_number
        if self.until:
            metadata["until"] = self.until
        if self.asks_peers:
            metadata["asks_peers"] = True
        if self.without:
            metadata["without"] = list(self.without)
        if self.paid_until:
            metadata["paid_until"] = self.paid_until
        if self.pause_s:
            metadata["pause_s"] = self.pause_s
        if self.tenure > 1:
            metadata["tenure"] = self.tenure
        return metadata

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any]) -> Directive:
        """Return the directive of a metadata entry.

        Raises KeyError, TypeError or ValueError if it is malformed.
        """
        return Directive(
            int(metadata["attempt"]),
            int(metadata["incarnation"]),
            DirectiveAction(metadata["action"]),
            slices=tuple(metadata.get("slices", ())),
            pause_s=int(metadata.get("pause_s", 0)),
            save_number=int(metadata.get("save_number", 0)),
            until=int(metadata.get("until", 0)),
            asks_peers=bool(metadata.get("asks_peers")),
            without=tuple(metadata.get("without", ())),
            paid_until=int(metadata.get("paid_until", 0)),
            tenure=int(metadata.get("tenure", 1)),
        )


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM or TPU node that the API lists."""

    name: str
    zone: str
    instance_id: str
    """Google's numeric id, which is never used again."""
    status: VmStatus
    replica_id: ReplicaId
    vm_generation: int
    """VM generation in its label."""
    directive: Directive | None
    """The directive in its metadata; None if there is none."""
    fingerprint: str
    """Fingerprint of its metadata. A write with an older fingerprint fails."""
    created_at: datetime | None = None
    """When it was requested; None: the API does not report it."""
    started_at: datetime | None = None
    """When it last became RUNNING; None if it never did, or the API does not report it."""
    is_tpu: bool = False
    """Whether it is a TPU node."""
    loss: LossCause = LossCause.GONE
    """Why it stopped, as far as its status reveals it."""
    address: str = ""
    """Internal address of the first host of a TPU slice; empty for other VMs."""


@dataclass(frozen=True, slots=True)
class LabelledVm:
    """A VM with its job label. The job need not exist."""

    vm: Vm
    label: str
