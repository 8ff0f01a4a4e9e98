"""Steps that bring the observed VMs to the desired ones.

`trainmaster.flows.provisioning.reconciliation` executes them.

A round is one common run of the members of a synchronous job. It is held until all of them are
ready. In an elastic job, a round may begin without some members, which join the next one.

Each step may be repeated, executed late, or executed by two deliveries at once.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

from trainmaster.core.model.purchase import OnDemand, PriceClass
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.vm import Directive, LossCause, Vm, VmStatus


@dataclass(frozen=True, slots=True)
class Create:
    """Create VMs of one role, zone and VM generation in one bulk insert: all of them or none,
    unless `partial`.
    """

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
    price: PriceClass = field(default_factory=OnDemand)
    """The price class of all of the VMs."""
    partial: bool = False
    """Whether fewer VMs, but at least one, may be created if the zone has no capacity for all of
    them.
    """

    def request_key(self, job_id: str) -> str:
        """Return a key that is the same for every repetition of this insert, and different for
        every other insert.
        """
        incarnation = f"{self.directive.attempt}/{self.directive.incarnation}"
        which = f"{self.zone}/{self.round}/{self.vm_generation}/{incarnation}"
        bought = f"{self.price.prefix.lower()}/" if self.price.prefix else ""
        return f"{job_id}/{which}/{bought}" + ",".join(self.names)

    def without(self, names: Container[str]) -> Create:
        """Return the request without the VMs of these names, which exist."""
        requested = zip(self.replica_ids, self.names, strict=True)
        missing = {name: replica_id for replica_id, name in requested if name not in names}
        return replace(self, replica_ids=tuple(missing.values()), names=tuple(missing))


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
class HandOver:
    """Give a kept VM to the job that has taken it."""

    vm: Vm
    create: Create
    """The request that would create the VM now: its metadata and labels are the VM's from now on.
    """


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
class ReportMissingMember:
    """Record that a round runs although this member awaits its VM."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class ReportGrowth:
    """Record that members that the running round goes without can join."""


@dataclass(frozen=True, slots=True)
class ReportSaveOver:
    """Record that the time of a request to save is over, and members still wait to join."""

    number: int
    """The request."""


Step = (
    Create
    | Delete
    | Direct
    | HandOver
    | Await
    | ReportLoss
    | ReportMissingMember
    | ReportGrowth
    | ReportSaveOver
)


class Readiness(Enum):
    """How far the members of a held round are."""

    NOT_HELD = auto()
    """No round is held."""
    AWAITED = auto()
    """Some agents have not reported."""
    REPORTED = auto()
    """All have reported, but some members have no VM: a verdict may end the job."""
    READY = auto()
    """All members are ready, and no VM that was given up can still run: the round may begin."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one cycle of a reconciliation, which loads and plans again after them."""

    steps: tuple[Step, ...]
    readiness: Readiness = Readiness.NOT_HELD

    @property
    def is_done(self) -> bool:
        """True if no step is left that may be taken now.

        VMs may still be missing, agents may have to report, and slices may be queued. All of that
        can last for days, and the sweep looks at such a job every minute.
        """
        return not self.steps or bool(self.queued_vms)

    @property
    def waits(self) -> bool:
        """True if there is nothing to do now but to wait for VMs."""
        return bool(self.steps) and all(isinstance(step, Await) for step in self.steps)

    @property
    def queued_vms(self) -> tuple[Vm, ...]:
        """The requests in Cloud TPU's queue if they are all that is left to wait for;
        else empty.
        """
        vms = [
            step.vm
            for step in self.steps
            if isinstance(step, Await) and step.vm.status is VmStatus.QUEUED
        ]
        return tuple(vms) if len(vms) == len(self.steps) else ()

    def without_missing(self) -> Steps:
        """Return the steps for a zone whose VMs cannot be listed: no VM there is lost, and none is
        created.
        """
        kept = tuple(
            step
            for step in self.steps
            if not isinstance(step, Create)
            and not (isinstance(step, ReportLoss) and step.vm is None)
        )
        return replace(self, steps=kept)
