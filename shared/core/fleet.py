"""What machines should exist, as a function of the stored state, and what it takes to get there from what does exist.

`wanted` reads the job, `plan_steps` compares it with the VMs that are there. Both are pure: `shared.flows.provision`
carries the steps out and comes again until none is left, so every step may be repeated, late, or done by another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.core.jobs import Job, JobState, Replica, ReplicaState, TaskGroup
from shared.core.seats import Seat

NAME_LENGTH_MAX: Final = 63
"""Compute Engine instance names and label values. Source: Compute API, `[a-z]([-a-z0-9]*[a-z0-9])?`, 1-63."""


class VmStatus(StrEnum):
    """A VM's life as far as it matters here; Compute's finer states map onto these."""

    CREATING = "CREATING"  # PENDING, PROVISIONING, STAGING, REPAIRING
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # STOPPING, PENDING_STOP, SUSPENDING, DEPROVISIONING, being deleted
    STOPPED = "STOPPED"  # TERMINATED, STOPPED, SUSPENDED


class DirectiveAction(StrEnum):
    RUN = "run"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Directive:
    """What the stored state tells an agent to do: be in this life of this attempt, or wait before it."""

    attempt: int
    incarnation: int
    action: DirectiveAction

    @property
    def order(self) -> tuple[int, int, int]:
        """Directives only ever go forward; holding before a life comes before running it."""
        rank = {DirectiveAction.HOLD: 0, DirectiveAction.RUN: 1, DirectiveAction.STOP: 2}
        return (self.attempt, self.incarnation, rank[self.action])


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM that exists. `fingerprint` is that of its metadata: writing the directive with a stale one fails."""

    name: str
    zone: str
    instance_id: str
    status: VmStatus
    seat: Seat
    machine: int
    directive: Directive | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class WantedVm:
    """`may_create`: no agent has spoken from this machine yet, so a missing VM is one still to be made; otherwise it
    is one that was lost."""

    replica: Replica
    name: str
    directive: Directive
    may_create: bool


@dataclass(frozen=True, slots=True)
class Create:
    """One bulk insert, all or nothing: VMs of one role, zone and machine number that start with the same directive."""

    group: TaskGroup
    zone: str
    machine: int
    directive: Directive
    seats: tuple[Seat, ...]
    names: tuple[str, ...]
    round: int

    def request_key(self, job_id: str) -> str:
        """The same for every repetition of this very insert, another one for every other."""
        which = f"{self.zone}/{self.round}/{self.machine}/{self.directive.attempt}/{self.directive.incarnation}"
        return f"{job_id}/{which}/" + ",".join(self.names)


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
    """A replica's VM stopped, or vanished, and no event has said so."""

    replica: Replica
    name: str
    vm: Vm | None


Step = Create | Delete | Direct | Await | Lost


def slug(job_id: str, length: int) -> str:
    return re.sub(r"[^a-z0-9]+", "-", job_id.lower()).strip("-")[:length].rstrip("-")


def vm_name(job_id: str, seat: Seat) -> str:
    """A function of job and seat only, so that a replaced VM has the same name and the same DNS name."""
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:6]
    tail = f"-{digest}-{seat}"
    return "tm-" + slug(job_id, NAME_LENGTH_MAX - len("tm-") - len(tail)) + tail


def seat_of(name: str) -> Seat:
    """The seat a VM name was made for."""
    task_type, index = name.rsplit("-", 2)[1:]
    return Seat.parse(f"{task_type}-{index}")


def job_label(job_id: str) -> str:
    """The job id itself where it is a legal label value, else a slug with a hash that keeps it unique."""
    if re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", job_id):
        return job_id
    return f"{slug(job_id, 54)}-{hashlib.sha256(job_id.encode()).hexdigest()[:8]}"


def wanted(job: Job, replicas: tuple[Replica, ...]) -> tuple[WantedVm, ...]:
    """The VMs that should exist for this job now and what each should be doing; `replicas` are the attempt's.

    A replica that exited 0 needs its VM no longer: nothing is paid for a machine that has nothing to do.
    """
    if job.state.is_terminal or job.state is JobState.CANCELLING:
        return ()
    peers_down = any(replica.state.is_down for replica in replicas)
    found = []
    for replica in replicas:
        if replica.state is ReplicaState.COMPLETED:
            continue
        hold = replica.state is ReplicaState.HELD and peers_down
        action = DirectiveAction.HOLD if hold else DirectiveAction.RUN
        directive = Directive(replica.attempt, replica.incarnation, action)
        may_create = replica.state in (ReplicaState.WAITING, ReplicaState.REPLACING)
        found.append(WantedVm(replica, vm_name(job.job_id, replica.seat), directive, may_create))
    return tuple(found)


def plan_steps(job: Job, wanted_vms: tuple[WantedVm, ...], vms: tuple[Vm, ...]) -> tuple[Step, ...]:
    """What is left to do. Empty: the fleet equals what is wanted.

    A VM with a higher machine number, or a directive further on, than wanted was made by someone who read a newer
    state than ours: it is left alone.
    """
    by_name = {vm.name: vm for vm in vms}
    wanted_names = {want.name for want in wanted_vms}
    steps: list[Step] = [_end(vm) for vm in vms if vm.name not in wanted_names]
    missing: dict[tuple[str, int, Directive], list[WantedVm]] = {}
    for want in wanted_vms:
        vm = by_name.get(want.name)
        machine = want.replica.machine
        if vm is None and want.may_create:
            missing.setdefault((want.replica.seat.task_type, machine, want.directive), []).append(want)
        elif vm is None:
            steps.append(Lost(want.replica, want.name, None))
        elif vm.machine > machine:
            continue
        elif vm.machine < machine or (vm.zone != job.zone and want.may_create):
            steps.append(_end(vm))
        elif vm.status in (VmStatus.STOPPED, VmStatus.STOPPING):
            steps.append(Lost(want.replica, want.name, vm))
        elif vm.directive is None or vm.directive.order < want.directive.order:
            steps.append(Direct(vm, want.directive))
        elif vm.status is VmStatus.CREATING:
            steps.append(Await(vm))
    steps.extend(_create(job, wants) for wants in missing.values())
    return tuple(steps)


def _create(job: Job, wants: list[WantedVm]) -> Create:
    first = wants[0]
    return Create(
        group=job.plan.group(first.replica.seat.task_type),
        zone=job.zone,
        machine=first.replica.machine,
        directive=first.directive,
        seats=tuple(want.replica.seat for want in wants),
        names=tuple(want.name for want in wants),
        round=job.placement.round,
    )


def _end(vm: Vm) -> Step:
    return Await(vm) if vm.status is VmStatus.STOPPING else Delete(vm)
