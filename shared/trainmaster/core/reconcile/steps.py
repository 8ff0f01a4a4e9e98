"""Steps that bring the observed VMs to the desired ones. `trainmaster.flows.provisioning.reconciliation` executes them.

Each step may be repeated, executed late, or executed by two deliveries at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.plan import TaskGroup
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Directive, LossCause, Vm, VmStatus


@dataclass(frozen=True, slots=True)
class Create:
    """Create VMs of one role, zone and VM generation in one bulk insert: all of them or none, unless `partial`."""

    group: TaskGroup
    zone: str
    vm_generation: int
    directive: Directive
    """The directive that all of the VMs start with."""
    replica_ids: tuple[ReplicaId, ...]
    """The replicas that get the VMs."""
    names: tuple[str, ...]
    """VM names, in the order of `replica_ids`."""
    round: int
    """The job's placement round."""
    spot: bool = False
    """Whether the VMs are Spot VMs. All VMs of one insert are, or none is."""

    partial: bool = False
    """Whether fewer VMs, but at least one, may be created if the zone has no capacity for all of them."""

    def request_key(self, job_id: str) -> str:
        """Return a key that is the same for every repetition of this insert, and different for every other insert."""
        which = f"{self.zone}/{self.round}/{self.vm_generation}/{self.directive.attempt}/{self.directive.incarnation}"
        pricing = "spot/" if self.spot else ""
        return f"{job_id}/{which}/{pricing}" + ",".join(self.names)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the VM, by its numeric id."""

    vm: Vm


@dataclass(frozen=True, slots=True)
class Direct:
    """Write the directive to the VM's metadata."""

    vm: Vm
    directive: Directive


@dataclass(frozen=True, slots=True)
class Await:
    """Look again later: the VM is being created, deleted or queued."""

    vm: Vm


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Record that the replica lost its VM, which no event has reported."""

    replica: Replica
    name: str
    """Name of the VM."""
    vm: Vm | None
    """The VM; None if it no longer exists."""
    cause: LossCause = LossCause.GONE
    at: datetime | None = None
    """When it was lost, if that is known; None: it is found lost now."""


@dataclass(frozen=True, slots=True)
class Reactivate:
    """Record that the primary's restart made the replica's completion outdated."""

    replica: Replica
    name: str
    """Name of its VM."""


@dataclass(frozen=True, slots=True)
class Refund:
    """Record that the loss of a peer explains a charged exit of the replica."""

    replica: Replica
    incarnation: int
    """The incarnation that the charged exit ended."""
    cause: Replica
    """The peer whose loss explains the exit."""


Step = Create | Delete | Direct | Await | ReportLoss | Reactivate | Refund


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one provisioning round: what `provision` executes before it loads and plans again."""

    steps: tuple[Step, ...]
    creates_postponed: bool = False
    """Whether VMs are missing that may not be requested before the placement's `next_at`."""

    @property
    def is_done(self) -> bool:
        """True if the observed VMs equal the desired ones."""
        return not self.steps and not self.creates_postponed

    @property
    def waits_for_backoff(self) -> bool:
        """True if the postponed creates are all that is left to do."""
        return self.creates_postponed and not self.steps

    @property
    def waits(self) -> bool:
        """True if there is nothing to do now but to wait for VMs."""
        return bool(self.steps) and all(isinstance(step, Await) for step in self.steps)

    @property
    def queued_vms(self) -> tuple[Vm, ...]:
        """The requests in Cloud TPU's queue if they are all that is left to wait for; else empty."""
        vms = [step.vm for step in self.steps if isinstance(step, Await) and step.vm.status is VmStatus.QUEUED]
        return tuple(vms) if len(vms) == len(self.steps) else ()

    def without_missing(self) -> Steps:
        """Return the steps for a zone whose VMs cannot be listed: no VM there is lost, and none is created."""
        kept = tuple(
            step
            for step in self.steps
            if not isinstance(step, Create) and not (isinstance(step, ReportLoss) and step.vm is None)
        )
        return Steps(kept, self.creates_postponed)
