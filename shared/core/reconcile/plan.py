"""What machines should exist, as a function of the stored state, and what it takes to get there from what does exist.

`desired` reads the job, `plan_steps` compares it with the VMs that are there. Both are pure: `shared.flows.provision`
carries the steps out and comes again until none is left, so every step may be repeated, late, or done by another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from shared.core.events import LossCause
from shared.core.model.job import Job, JobState, Plan, Replica, ReplicaState, TaskGroup
from shared.core.model.replica_id import ReplicaId, TaskType

NAME_LENGTH_MAX: Final = 63
"""Compute Engine instance names and label values. Source: Compute API, `[a-z]([-a-z0-9]*[a-z0-9])?`, 1-63."""

_VM_NAME: Final = re.compile(rf"tm-[a-z0-9-]+-(?P<hash>[0-9a-f]{{6}})-(?:{'|'.join(TaskType)})-(?:0|[1-9][0-9]*)")


class VmStatus(StrEnum):
    """A VM's incarnation as far as it matters here; Compute's finer states map onto these."""

    CREATING = "CREATING"  # PENDING, PROVISIONING, STAGING, REPAIRING
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # STOPPING, PENDING_STOP, SUSPENDING, DEPROVISIONING, being deleted
    STOPPED = "STOPPED"  # TERMINATED, STOPPED, SUSPENDED
    QUEUED = "QUEUED"  # only asked for: waits in Cloud TPU's queue, perhaps for days; nothing can be written to it
    REFUSED = "REFUSED"  # only asked for, and in vain: creating it again tells why


class DirectiveAction(StrEnum):
    RUN = "run"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Directive:
    """What the stored state tells an agent to do: be in this incarnation of this attempt, or wait before it. `slices`: where
    the job's TPU slices are in this incarnation (`shared.core.reconcile.slice_addresses`); it orders nothing."""

    attempt: int
    incarnation: int
    action: DirectiveAction
    slices: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, int]:
        """Directives only ever go forward; holding before a incarnation comes before running it."""
        rank = {DirectiveAction.HOLD: 0, DirectiveAction.RUN: 1, DirectiveAction.STOP: 2}
        return (self.attempt, self.incarnation, rank[self.action])

    @property
    def said(self) -> dict[str, object]:
        """As metadata has it: docs/interfaces.md section 3."""
        said: dict[str, object] = {
            "attempt": self.attempt,
            "incarnation": self.incarnation,
            "action": self.action.value,
        }
        return said | ({"slices": list(self.slices)} if self.slices else {})


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM that exists, or a TPU node. `fingerprint` is that of its metadata: writing the directive with a stale one
    fails. `started_at` is when it last came up; None: it has not, or nobody said when. `loss`: why it stopped, as far
    as its status tells. `address`: where the first host of a slice is reached."""

    name: str
    zone: str
    instance_id: str
    status: VmStatus
    replica_id: ReplicaId
    vm_generation: int
    directive: Directive | None
    fingerprint: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    is_tpu: bool = False
    loss: LossCause = LossCause.GONE
    address: str = ""


@dataclass(frozen=True, slots=True)
class LabelledVm:
    """A VM with the label of whatever job it was made for."""

    vm: Vm
    label: str


@dataclass(frozen=True, slots=True)
class DesiredVm:
    """`may_create`: no agent has spoken from this machine yet, so a missing VM is one still to be made; otherwise it
    is one that was lost. `waits`: it is held only until more is known than now."""

    replica: Replica
    name: str
    directive: Directive
    may_create: bool
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """One bulk insert, all or nothing: VMs of one role, zone and machine number that start with the same directive.

    `spot`: bought as Spot VMs, which all of one role and machine number are or none is.
    """

    group: TaskGroup
    zone: str
    vm_generation: int
    directive: Directive
    replica_ids: tuple[ReplicaId, ...]
    names: tuple[str, ...]
    round: int
    spot: bool = False

    def request_key(self, job_id: str) -> str:
        """The same for every repetition of this very insert, another one for every other."""
        which = f"{self.zone}/{self.round}/{self.vm_generation}/{self.directive.attempt}/{self.directive.incarnation}"
        bought = "spot/" if self.spot else ""
        return f"{job_id}/{which}/{bought}" + ",".join(self.names)


@dataclass(frozen=True, slots=True)
class Delete:
    vm: Vm


@dataclass(frozen=True, slots=True)
class Direct:
    vm: Vm
    directive: Directive


@dataclass(frozen=True, slots=True)
class Await:
    """Nothing to do but come again: the VM is on its way up or down."""

    vm: Vm


@dataclass(frozen=True, slots=True)
class Lost:
    """A replica's VM stopped, vanished, or never spoke, and no event has said so."""

    replica: Replica
    name: str
    vm: Vm | None
    cause: LossCause = LossCause.GONE


@dataclass(frozen=True, slots=True)
class Reactivate:
    """A replica that exited 0 is needed again."""

    replica: Replica
    name: str


Step = Create | Delete | Direct | Await | Lost | Reactivate


def slug(job_id: str, length: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")[:length].rstrip("-")


@lru_cache(maxsize=4096)  # asked for every replica at every step
def vm_name(job_id: str, replica_id: ReplicaId) -> str:
    """A function of job and replica only, so that a replaced VM has the same name and the same DNS name."""
    tail = f"-{name_hash(job_id)}-{replica_id}"
    return "tm-" + slug(job_id, NAME_LENGTH_MAX - len("tm-") - len(tail)) + tail


def name_hash(job_id: str) -> str:
    """The part that the names of all of a job's VMs have in common: longer slugs are cut to make room for the replica."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:6]


def hash_in(name: str) -> str | None:
    """The `name_hash` in a VM's name; None where the name is none of ours."""
    match = _VM_NAME.fullmatch(name)
    return match["hash"] if match else None


def replica_id_from_vm_name(name: str) -> ReplicaId:
    """The replica a VM name was made for."""
    task_type, index = name.rsplit("-", 2)[1:]
    return ReplicaId.parse(f"{task_type}-{index}")


def job_label(job_id: str) -> str:
    """The job id itself where it is a legal label value, else a slug with a hash that keeps it unique."""
    if re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", job_id):
        return job_id
    return f"{slug(job_id, 54)}-{hashlib.sha256(job_id.encode()).hexdigest()[:8]}"


def desired(job: Job, replicas: tuple[Replica, ...]) -> tuple[DesiredVm, ...]:
    """The VMs that should exist for this job now and what each should be doing; `replicas` are the attempt's.

    A replica that exited 0 needs its VM no longer: nothing is paid for a machine that has nothing to do.
    """
    if job.state.is_terminal or job.state is JobState.CANCELLING:
        return ()
    peers_down = any(replica.state.is_down and replica.replica_id.is_in_cluster for replica in replicas)
    found = []
    for replica in replicas:
        if replica.state is ReplicaState.COMPLETED:
            continue
        hold = replica.state is ReplicaState.HELD and peers_down
        action = DirectiveAction.HOLD if hold else DirectiveAction.RUN
        directive = Directive(replica.attempt, replica.incarnation, action)
        may_create = replica.state in (ReplicaState.WAITING, ReplicaState.REPLACING) and replica.instance_id is None
        found.append(DesiredVm(replica, vm_name(job.job_id, replica.replica_id), directive, may_create))
    return tuple(found)


def plan_steps(
    job: Job, desired_vms: tuple[DesiredVm, ...], vms: tuple[Vm, ...], replicas: tuple[Replica, ...] = ()
) -> tuple[Step, ...]:
    """What is left to do. Empty: the fleet equals what is desired. `replicas`: those that `desired_vms` were made of.

    A VM with a higher machine number, or a directive further on, than desired was made by someone who read a newer
    state than ours: it is left alone. Of two VMs of one name (an insert that came late in a zone that was given up) one
    is the replica's, the other a zombie. Who is held until more is known is awaited where nothing else is to be done.
    """
    by_name = chosen(job, desired_vms, vms)
    known = {vm_name(job.job_id, replica.replica_id): replica.vm_generation for replica in replicas}
    steps: list[Step] = [
        _end(vm)
        for vm in vms
        if by_name.get(vm.name) is not vm
        and (job.state.is_terminal or vm.vm_generation <= known.get(vm.name, vm.vm_generation))
    ]
    held: list[Step] = []
    missing: dict[tuple[str, int, Directive], list[DesiredVm]] = {}
    for want in desired_vms:
        vm = by_name.get(want.name)
        if _is_to_make(job, want, vm):
            key = (want.replica.replica_id.task_type, want.replica.vm_generation, want.directive)
            missing.setdefault(key, []).append(want)
        elif vm is None:
            steps.append(Lost(want.replica, want.name, None))
        elif (step := _next(job, want, vm)) is not None:
            steps.append(step)
        elif want.waits:
            held.append(Await(vm))
    steps.extend(_create(job, wants) for wants in missing.values())
    return tuple(steps or held)


def _next(job: Job, want: DesiredVm, vm: Vm) -> Step | None:
    """What is to be done about this VM; None: nothing, it is as desired, or somebody else's by now."""
    if vm.vm_generation > want.replica.vm_generation:
        return None
    if vm.vm_generation < want.replica.vm_generation or (vm.zone != job.zone and want.may_create):
        return _end(vm)
    if vm.status in (VmStatus.STOPPED, VmStatus.STOPPING, VmStatus.REFUSED):
        return Lost(want.replica, want.name, vm, vm.loss)
    if vm.zone != job.zone:
        return Lost(want.replica, want.name, vm, LossCause.WRONG_ZONE)
    is_told = vm.directive is not None and vm.directive.order >= want.directive.order
    if not is_told:  # what is only asked for cannot be told: it is asked for anew
        return _end(vm) if vm.status is VmStatus.QUEUED else Direct(vm, want.directive)
    return Await(vm) if vm.status in (VmStatus.CREATING, VmStatus.QUEUED) else None


def _is_to_make(job: Job, want: DesiredVm, vm: Vm | None) -> bool:
    """It is not there, or was asked for in vain where it is still requested."""
    if vm is None:
        return want.may_create
    is_this_one = vm.vm_generation == want.replica.vm_generation and vm.zone == job.zone
    return vm.status is VmStatus.REFUSED and is_this_one and want.may_create


def buys_spot(plan: Plan, replica: Replica) -> bool:
    """Whether the VM in its replica is a Spot VM. A replica whose `on_demand_after` first ones were taken away gets the next
    on demand. The machine number alone decides, which only ever grows, also over reruns: so whoever makes this VM, and
    however often, makes the same."""
    limit = plan.on_demand_after
    return plan.group(replica.replica_id.task_type).spot and (limit is None or replica.vm_generation <= limit)


def chosen(job: Job, desired_vms: tuple[DesiredVm, ...], vms: tuple[Vm, ...]) -> dict[str, Vm]:
    """The VM in each desired replica: the youngest machine; of several, the one that has spoken, then the one in the job's
    zone."""
    spoken = {want.name: want.replica.instance_id for want in desired_vms}
    found: dict[str, Vm] = {}
    for vm in sorted(
        vms, key=lambda vm: (vm.vm_generation, vm.instance_id == spoken.get(vm.name), vm.zone == job.zone)
    ):
        if vm.name in spoken:
            found[vm.name] = vm
    return found


def _create(job: Job, wants: list[DesiredVm]) -> Create:
    first = wants[0]
    return Create(
        group=job.plan.group(first.replica.replica_id.task_type),
        zone=job.zone,
        vm_generation=first.replica.vm_generation,
        directive=first.directive,
        replica_ids=tuple(want.replica.replica_id for want in wants),
        names=tuple(want.name for want in wants),
        round=job.placement.round,
        spot=buys_spot(job.plan, first.replica),
    )


def _end(vm: Vm) -> Step:
    return Await(vm) if vm.status is VmStatus.STOPPING else Delete(vm)
