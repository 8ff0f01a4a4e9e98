"""Compute Engine, as far as it matters here: zonal names, requests remembered by id, operations that take their time.

    insert ──► operation ──create_s──► all VMs RUNNING, or none and a stockout
    CREATING ──► RUNNING ──boot──► agent …… STOPPING (guest is told) ──► gone
                    └── preempted, host error: STOPPED or gone, with or without notice; or back after a reboot

Unlike `shared.memory.fleet`, whose promises are the same, two zones may have VMs of one name, an insert may fail after
it was accepted, and a request id that was used is never used up: its first answer is the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from shared.core.model.job import Job
from shared.core.reconcile.plan import (
    Create,
    Directive,
    DirectiveAction,
    LabelledVm,
    Vm,
    VmStatus,
    job_label,
    replica_id_from_vm_name,
)
from shared.ports import CapacityErrorKind, Created, CreateOutcome, NotCreated, Pending
from simulator.world.context import Context

if TYPE_CHECKING:
    from simulator.world.agent import SimAgent

INSERT_WAIT_S: Final = 20.0
DELETE_WAIT_S: Final = 3.0
CREATE_S: Final = (8.0, 25.0)
SLOW_CREATE_S: Final = (40.0, 150.0)
DELETE_S: Final = (2.0, 35.0)
NOTICE_S: Final = 30.0
FUSE_SLACK_S: Final = 3600.0

Sleep = Callable[[float], None]


@dataclass(eq=False, slots=True)
class SimVm:
    """`seen` is what a list call shows. `fuse_s`: Compute deletes it then, whatever happens. A slice has one agent for
    each of its hosts."""

    seen: Vm
    job_id: str
    metadata: Mapping[str, str]
    created_s: float
    fuse_s: float
    hosts: int = 1
    agents: tuple[SimAgent, ...] = ()
    is_gone: bool = False
    gone_s: float | None = None

    @property
    def is_live(self) -> bool:
        return not self.is_gone and self.seen.status is not VmStatus.STOPPED


@dataclass(slots=True)
class _Operation:
    done_s: float
    error_kind: NotCreated | None
    names: tuple[str, ...]
    vms: list[SimVm]
    is_done: bool = False


@dataclass(slots=True)
class SimFleet:
    """See `shared.ports.Fleet`. `sleep` lets others run while a call waits; `boot` makes a VM's agents; `deleted` hears
    of every VM that is about to be deleted. `replays_requests`: as Compute does, for ever; otherwise until a VM of it
    is gone."""

    context: Context
    boot: Callable[[SimVm], tuple[SimAgent, ...]]
    sleep: Sleep
    deleted: Callable[[SimVm], None] = lambda _: None
    replays_requests: bool = True
    there: dict[tuple[str, str], SimVm] = field(default_factory=dict)
    past: list[SimVm] = field(default_factory=list)
    _operations: dict[str, _Operation] = field(default_factory=dict)
    _numbers: int = 1000

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        del tpu_zones
        return tuple(each.seen for each in self.there.values() if each.job_id == job_id)

    def list_all(self) -> tuple[LabelledVm, ...]:
        return tuple(LabelledVm(each.seen, job_label(each.job_id)) for each in self.there.values())

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        there = {name: self.there[name, create.zone] for name in create.names if (name, create.zone) in self.there}
        operation = self._answered(create.request_key(job.job_id))
        if operation is None and there:
            if any(_is_in_the_way(vm.seen, create) for vm in there.values()):
                return Pending()
            rest = [
                (replica_id, name)
                for replica_id, name in zip(create.replica_ids, create.names, strict=True)
                if name not in there
            ]
            if not rest:
                return Created()
            create = replace(
                create, replica_ids=tuple(replica_id for replica_id, _ in rest), names=tuple(name for _, name in rest)
            )
            operation = self._answered(create.request_key(job.job_id))
        if operation is None:
            operation = self._insert(job, create, metadata)
        if not operation.is_done:
            self.sleep(min(INSERT_WAIT_S, max(0.0, operation.done_s - self.context.now)))
        if not operation.is_done:
            return Pending()
        return operation.error_kind or Created()

    def delete(self, vm: Vm) -> bool:
        found = self._find(vm)
        if found is None:
            return True
        self.deleted(found)
        self.shut_down(found, self.context.between(*DELETE_S), stays=False)
        self.sleep(DELETE_WAIT_S)
        return found.is_gone

    def direct(self, vm: Vm, directive: Directive) -> bool:
        found = self._find(vm)
        if found is None or found.seen.fingerprint != vm.fingerprint:
            return False
        found.seen = replace(found.seen, directive=directive, fingerprint=str(int(vm.fingerprint) + 1))
        self.context.say("directed", vm.name, directive.attempt, directive.incarnation, directive.action)
        for agent in found.agents:
            agent.hear_soon()
        return True

    def release(self, job: Job) -> bool:
        """Its VMs are all that a job has here."""
        del job
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """These VMs print nothing."""
        del vm
        return "", start

    def _find(self, vm: Vm) -> SimVm | None:
        found = self.there.get((vm.name, vm.zone))
        return found if found and found.seen.instance_id == vm.instance_id else None

    def _answered(self, key: str) -> _Operation | None:
        """The operation that this request id began before, however long ago and whatever became of its VMs."""
        operation = self._operations.get(key)
        if operation and not self.replays_requests and any(vm.is_gone for vm in operation.vms):
            return operation if operation.error_kind else None
        return operation

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> _Operation:
        context, faults = self.context, self.context.faults
        key = create.request_key(job.job_id)
        if error_kind := self._refused_at_once(create.zone):
            self._operations[key] = _Operation(context.now, error_kind, (), [], is_done=True)
            return self._operations[key]
        create_s = context.between(*(SLOW_CREATE_S if context.chance(faults.slow_create) else CREATE_S))
        error_kind = _stockout(create.zone) if context.chance(faults.stockout_late) else None
        vms = [self._place(job, create, name, metadata) for name in create.names]
        operation = self._operations[key] = _Operation(context.now + create_s, error_kind, create.names, vms)
        context.say("insert", create.zone, f"round {create.round}", *create.names)
        context.scheduler.after(create_s, lambda: self._settle(operation))
        return operation

    def _refused_at_once(self, zone: str) -> NotCreated | None:
        context, faults = self.context, self.context.faults
        if context.chance(faults.stockout):
            return _stockout(zone)
        if context.chance(faults.quota):
            return NotCreated(CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0")
        if context.chance(faults.internal):
            return NotCreated(CapacityErrorKind.INTERNAL, "INTERNAL_ERROR", "Internal error. Please try again")
        if context.chance(faults.denied):
            return NotCreated(
                CapacityErrorKind.DENIED, "PERMISSIONS_ERROR", "Required 'compute.instances.create' permission"
            )
        return None

    def _place(self, job: Job, create: Create, name: str, metadata: Mapping[str, str]) -> SimVm:
        self._numbers += 1
        said = json.loads(metadata["trainmaster-directive"])
        action, slices = DirectiveAction(said["action"]), tuple(said.get("slices", ()))
        directive = Directive(said["attempt"], said["incarnation"], action, slices)
        number, now = str(self._numbers), self._clock()
        seen = Vm(
            name, create.zone, number, VmStatus.CREATING, replica_id_from_vm_name(name), create.vm_generation, directive, "1", created_at=now,
            is_tpu=create.group.tpu is not None,
        )  # fmt: skip
        plan = job.plan
        fuse_s = self.context.now + plan.max_running_s + (plan.max_wait_s or 0) + FUSE_SLACK_S
        vm = SimVm(seen, job.job_id, metadata, self.context.now, fuse_s, create.group.hosts)
        self.there[name, create.zone] = vm
        self.context.scheduler.after(fuse_s - self.context.now, lambda: self.vanish(vm, "fuse"))
        return vm

    def _settle(self, operation: _Operation) -> None:
        operation.is_done = True
        for vm in operation.vms:
            if vm.is_gone or vm.seen.status is not VmStatus.CREATING:
                continue
            if operation.error_kind:
                self.vanish(vm, "stockout")
                continue
            self.come_up(vm)

    def come_up(self, vm: SimVm) -> None:
        context = self.context
        address = f"10.0.0.{vm.seen.instance_id}" if vm.seen.is_tpu else ""
        vm.seen = replace(vm.seen, status=VmStatus.RUNNING, started_at=self._clock(), address=address)
        context.say("up", vm.seen.name, vm.seen.instance_id, f"machine {vm.seen.vm_generation}")
        if context.chance(context.faults.mute):
            context.scheduler.after(context.between(0.1, 4), lambda: self._go_mutely(vm))
        vm.agents = vm.agents or self.boot(vm)
        for agent in vm.agents:
            agent.boot()

    def _go_mutely(self, vm: SimVm) -> None:
        """Before the agent's first word."""
        if vm.is_gone or vm.seen.status is not VmStatus.RUNNING:
            return
        if self.context.chance(0.5):
            self.vanish(vm, "preempted")
        else:
            self.stop(vm, "preempted")

    def shut_down(self, vm: SimVm, within_s: float, *, stays: bool) -> None:
        """The guest is told and has that long. A VM that `stays` is there, stopped, until somebody deletes it."""
        if vm.is_gone or vm.seen.status is VmStatus.STOPPING:
            return
        was_up = vm.seen.status is VmStatus.RUNNING
        vm.seen = replace(vm.seen, status=VmStatus.STOPPING)
        self.context.say("stopping", vm.seen.name, vm.seen.instance_id)
        for agent in vm.agents if was_up else ():
            agent.shut_down()
        end = (lambda: self.stop(vm, "shut down")) if stays else (lambda: self.vanish(vm, "deleted"))
        self.context.scheduler.after(within_s, end)

    def stop(self, vm: SimVm, why: str) -> None:
        if not vm.is_gone:
            self.context.say("stopped", vm.seen.name, vm.seen.instance_id, why)
            vm.seen = replace(vm.seen, status=VmStatus.STOPPED)
            self._power_off(vm)

    def vanish(self, vm: SimVm, why: str) -> None:
        if vm.is_gone:
            return
        self.context.say("gone", vm.seen.name, vm.seen.instance_id, why)
        vm.is_gone, vm.gone_s = True, self.context.now
        del self.there[vm.seen.name, vm.seen.zone]
        self.past.append(vm)
        self._power_off(vm)

    def _power_off(self, vm: SimVm) -> None:
        for agent in vm.agents:
            agent.die()

    def _clock(self) -> datetime:
        return self.context.scheduler.clock()


def _is_in_the_way(vm: Vm, create: Create) -> bool:
    return vm.vm_generation < create.vm_generation or vm.status in (VmStatus.STOPPING, VmStatus.STOPPED)


def _stockout(zone: str) -> NotCreated:
    return NotCreated(
        CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", f"{zone} does not have enough resources"
    )
