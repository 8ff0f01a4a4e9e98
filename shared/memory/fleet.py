"""The Fleet in memory: VMs are entries that come and go as told, with stockouts on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from shared.core.events import LossCause
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
from shared.ports import CapacityErrorKind, Clock, Created, CreateOutcome, NotCreated, Pending


@dataclass
class MemoryFleet:
    """See `shared.ports.Fleet`. Thread-safe.

    `stockout_zones` refuse every insert. With `is_slow`, VMs stay CREATING, and deleted ones STOPPING, until `settle`.
    A slice that is asked for in Cloud TPU's queue is QUEUED until `admit`, or REFUSED from `expire` on.
    """

    stockout_zones: set[str] = field(default_factory=set)
    is_slow: bool = False
    clock: Clock = field(default_factory=lambda: _now)
    _vms: dict[str, tuple[str, Vm]] = field(default_factory=dict)
    _metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    _outcomes: dict[str, CreateOutcome] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _searches: dict[str, str] = field(default_factory=dict)
    _last_number: int = 1000

    def copy(self) -> MemoryFleet:
        """Another one that holds the same and goes its own way: for searches that branch."""
        with self._lock:
            return replace(
                self,
                stockout_zones=set(self.stockout_zones),
                _vms=dict(self._vms),
                _metadata=dict(self._metadata),
                _outcomes=dict(self._outcomes),
                _searches=dict(self._searches),
                _lock=threading.RLock(),
            )

    def list_vms(self, job_id: str, tpu_zones: Sequence[str] = ()) -> tuple[Vm, ...]:
        with self._lock:
            return tuple(vm for owner, vm in self._vms.values() if owner == job_id)

    def list_all(self) -> tuple[LabelledVm, ...]:
        with self._lock:
            return tuple(LabelledVm(vm, job_label(owner)) for owner, vm in self._vms.values())

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        key = create.request_key(job.job_id)
        with self._lock:
            if create.group.tpu is not None and create.group.tpu.queue is not None:
                return self._ask(job, create, metadata)
            if key in self._outcomes:
                return self._outcomes[key]
            outcome = self._insert(job, create, metadata)
            if not isinstance(outcome, Pending):
                self._outcomes[key] = outcome
            return outcome

    def _ask(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """In the queue: what failed says so to the search that asked, and makes room for the next one."""
        (name,) = create.names
        if name not in self._vms:
            self._place(job, create, name, metadata, VmStatus.QUEUED)
            self._searches[name] = create.request_key(job.job_id)
        elif self._vms[name][1].status is VmStatus.REFUSED:
            if self._searches[name] == create.request_key(job.job_id):
                return NotCreated(CapacityErrorKind.STOCKOUT, "DEADLINE_EXCEEDED", "waited for in vain")
            del self._vms[name]
        return Pending()

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        if create.zone in self.stockout_zones:
            code = "ZONE_RESOURCE_POOL_EXHAUSTED"
            return NotCreated(
                CapacityErrorKind.STOCKOUT, code, f"{create.zone} does not have enough resources available"
            )
        taken = [name for name in create.names if name in self._vms]
        if any(self._vms[name][1].vm_generation != create.vm_generation for name in taken):
            return Pending()
        for name in create.names:
            if name not in taken:
                status = VmStatus.CREATING if self.is_slow else VmStatus.RUNNING
                self._place(job, create, name, metadata, status)
        return Created()

    def _place(self, job: Job, create: Create, name: str, metadata: Mapping[str, str], status: VmStatus) -> None:
        self._last_number += 1
        now, is_tpu = self.clock(), create.group.tpu is not None
        vm = Vm(
            name=name,
            zone=create.zone,
            instance_id=str(self._last_number),
            status=status,
            replica_id=replica_id_from_vm_name(name),
            vm_generation=create.vm_generation,
            directive=_directive(metadata["trainmaster-directive"]),
            fingerprint="1",
            created_at=now,
            started_at=now if status is VmStatus.RUNNING else None,
            is_tpu=is_tpu,
            address=f"10.0.{self._last_number % 250}.1" if is_tpu else "",
        )
        self._vms[name] = (job.job_id, vm)
        self._metadata[name] = dict(metadata)

    def delete(self, vm: Vm) -> bool:
        with self._lock:
            found = self._vms.get(vm.name)
            if found is None or found[1].instance_id != vm.instance_id:
                return True
            if self.is_slow:
                self._put(replace(found[1], status=VmStatus.STOPPING))
                return False
            del self._vms[vm.name]
            return True

    def direct(self, vm: Vm, directive: Directive) -> bool:
        with self._lock:
            found = self._vms.get(vm.name)
            if found is None or found[1].instance_id != vm.instance_id or found[1].fingerprint != vm.fingerprint:
                return False
            self._put(replace(found[1], directive=directive, fingerprint=str(int(vm.fingerprint) + 1)))
            return True

    def release(self, job: Job) -> bool:
        """Its VMs are all that a job has here."""
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """These VMs print nothing."""
        return "", start

    def admit(self, name: str) -> None:
        """Its turn in the queue has come."""
        with self._lock:
            self._last_number += 1
            vm = replace(self._vms[name][1], instance_id=str(self._last_number), status=VmStatus.RUNNING)
            self._put(replace(vm, started_at=self.clock()))

    def expire(self, name: str) -> None:
        """It was waited for in vain."""
        with self._lock:
            self._put(replace(self._vms[name][1], status=VmStatus.REFUSED))

    def settle(self) -> None:
        """What was on its way has arrived."""
        with self._lock:
            for _, vm in list(self._vms.values()):
                if vm.status is VmStatus.STOPPING:
                    del self._vms[vm.name]
                elif vm.status is VmStatus.CREATING:
                    self._put(replace(vm, status=VmStatus.RUNNING, started_at=self.clock()))

    def stop(self, name: str, loss: LossCause = LossCause.GONE) -> None:
        """The host took it down: it is there, and does nothing."""
        with self._lock:
            self._put(replace(self._vms[name][1], status=VmStatus.STOPPED, loss=loss))

    def vanish(self, name: str) -> None:
        with self._lock:
            del self._vms[name]

    def metadata(self, name: str) -> Mapping[str, str]:
        with self._lock:
            return self._metadata[name]

    def _put(self, vm: Vm) -> None:
        self._vms[vm.name] = (self._vms[vm.name][0], vm)


def _now() -> datetime:
    return datetime.now(UTC)


def _directive(text: str) -> Directive:
    said = json.loads(text)
    action = DirectiveAction(said["action"])
    return Directive(said["attempt"], said["incarnation"], action, tuple(said.get("slices", ())))
