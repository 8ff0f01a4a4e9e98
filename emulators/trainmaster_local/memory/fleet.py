"""The Fleet port in memory: VMs are dictionary entries, and tests decide when they change state.

The simulator has a fleet of its own, whose VMs run agents (`simulator.world.fleet`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, LossCause, Vm, VmStatus
from trainmaster.core.model.vm_names import job_label, replica_id_from_vm_name
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.ports import (
    Clock,
    Created,
    CreateOutcome,
    NotCreated,
    Pending,
    ZonesUnreachableError,
    complete,
)

_Key = tuple[str, str]
"""Name and zone of a VM."""


@dataclass
class MemoryFleet:
    """Adapter of `trainmaster.ports.Fleet`. Thread-safe.

    Names are unique within a zone, so two zones may have VMs of the same name. A slice (a TPU
    machine of several hosts) that is requested through Cloud TPU's queue is QUEUED until `admit`,
    or REFUSED after `expire`. The *directive* in a VM's metadata is what the stored state orders
    its agent to do. Jobs may hand their VMs over to later ones, so VMs belong to a *machine set*,
    which has the id of the job that created them.

    Methods of the port raise ZonesUnreachableError for a zone in `unreachable_zones`. Tests name a
    VM by its name alone where no other VM has it.
    """

    stockout_zones: set[str] = field(default_factory=set)
    """Zones in which every insert fails for lack of capacity."""
    unreachable_zones: set[str] = field(default_factory=set)
    """Zones that listings lack and whose VMs cannot be changed."""
    capacity: dict[str, int] = field(default_factory=dict)
    """Zone → its capacity in VMs. Other zones have no limit."""
    is_slow: bool = False
    """If set, new VMs stay CREATING and deleted VMs stay STOPPING until `settle`."""
    clock: Clock = field(default_factory=lambda: lambda: datetime.now(UTC))
    _vms: dict[_Key, tuple[str, Vm]] = field(default_factory=dict)
    """Id of the machine set, and VM."""
    _metadata: dict[_Key, dict[str, str]] = field(default_factory=dict)
    _outcomes: dict[str, CreateOutcome] = field(default_factory=dict)
    """Key of a request → its outcome, which a repeated request gets again."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _queue_keys: dict[_Key, str] = field(default_factory=dict)
    """Queued slice → key of the request that put it into the queue."""
    _heartbeats: dict[str, datetime] = field(default_factory=dict)
    """Instance id → time of the last heartbeat."""
    _metrics: dict[str, str] = field(default_factory=dict)
    """Instance id → the text that its agent reported last."""
    _last_number: int = 1000
    """The latest instance id."""

    def copy(self) -> MemoryFleet:
        """Return an independent fleet with the same VMs, for a search that branches."""
        with self._lock:
            return replace(
                self,
                stockout_zones=set(self.stockout_zones),
                unreachable_zones=set(self.unreachable_zones),
                capacity=dict(self.capacity),
                _vms=dict(self._vms),
                _metadata=dict(self._metadata),
                _outcomes=dict(self._outcomes),
                _queue_keys=dict(self._queue_keys),
                _heartbeats=dict(self._heartbeats),
                _metrics=dict(self._metrics),
                _lock=threading.RLock(),
            )

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        """Return the VMs of the machine set with this id. `zones`: only an outage of these counts;
        empty: of any.

        Raises ZonesUnreachableError, which has the VMs of the other zones.
        """
        with self._lock:
            vms = [vm for owner, vm in self._reachable_vms() if owner == job_id]
            unreachable = sorted(self.unreachable_zones)
            if zones:
                unreachable = [zone for zone in unreachable if zone in zones]
            return complete(vms, unreachable)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs, each with the label that names its job. Raises as `list_vms`."""
        with self._lock:
            vms = [LabelledVm(vm, job_label(owner)) for owner, vm in self._reachable_vms()]
            return complete(vms, sorted(self.unreachable_zones))

    def _reachable_vms(self) -> list[tuple[str, Vm]]:
        """Return the id of the machine set and the VM, of all VMs that listings have."""
        vms = self._vms.values()
        return [(owner, vm) for owner, vm in vms if vm.zone not in self.unreachable_zones]

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs of a request, and return its outcome; a repeated request gets the same
        one.

        Pending: the request is to be repeated later.
        """
        key = create.request_key(job.job_id)
        self._must_reach(create.zone)
        with self._lock:
            if create.group.purchase.is_queued:
                return self._request_queued(job, create, metadata)
            if key in self._outcomes:
                return self._outcomes[key]
            outcome = self._insert(job, create, metadata)
            if not isinstance(outcome, Pending):
                self._outcomes[key] = outcome
            return outcome

    def _request_queued(
        self, job: Job, create: Create, metadata: Mapping[str, str]
    ) -> CreateOutcome:
        """Request a slice through the queue.

        A refused slice is reported to repeats of the request that created it. Any other request
        replaces it.
        """
        (name,) = create.names
        key = (name, create.zone)
        if key not in self._vms:
            self._add_vm(job, create, name, metadata, VmStatus.QUEUED)
            self._queue_keys[key] = create.request_key(job.job_id)
        elif self._vms[key][1].status is VmStatus.REFUSED:
            if self._queue_keys[key] == create.request_key(job.job_id):
                return NotCreated(
                    CapacityErrorKind.STOCKOUT,
                    "DEADLINE_EXCEEDED",
                    "the queued request expired before there was capacity",
                )
            del self._vms[key]
        return Pending()

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs that do not exist yet, if the zone has capacity: all, or with
        `create.partial` as many as fit.
        """
        if create.zone in self.stockout_zones:
            return _stockout(f"{create.zone} does not have enough resources available")
        existing = {
            name: self._vms[name, create.zone][1]
            for name in create.names
            if (name, create.zone) in self._vms
        }
        if any(vm.vm_generation != create.vm_generation for vm in existing.values()):
            return Pending()  # a VM of another generation has the name, and is deleted first
        missing = [name for name in create.names if name not in existing]
        fitting = missing[: self._capacity_left(create.zone, len(missing))]
        is_part_enough = create.partial and len(fitting) > 0
        if len(fitting) < len(missing) and not is_part_enough:
            return _stockout(f"{create.zone} has no capacity for {len(missing)} VMs")
        for name in fitting:
            status = VmStatus.CREATING if self.is_slow else VmStatus.RUNNING
            self._add_vm(job, create, name, metadata, status)
        return Created()

    def _capacity_left(self, zone: str, requested: int) -> int:
        """Return how many of the requested VMs fit into the zone."""
        limit = self.capacity.get(zone)
        if limit is None:
            return requested
        existing = [name for name, vm_zone in self._vms if vm_zone == zone]
        return max(0, min(requested, limit - len(existing)))

    def _add_vm(
        self, job: Job, create: Create, name: str, metadata: Mapping[str, str], status: VmStatus
    ) -> None:
        """Add a VM with the next instance id; its metadata must have a directive."""
        self._last_number += 1
        now = self.clock()
        is_tpu = create.group.tpu is not None
        vm = Vm(
            name=name,
            zone=create.zone,
            instance_id=str(self._last_number),
            status=status,
            replica_id=replica_id_from_vm_name(name),
            vm_generation=create.vm_generation,
            directive=Directive.from_metadata(json.loads(metadata["trainmaster-directive"])),
            fingerprint="1",
            created_at=now,
            started_at=now if status is VmStatus.RUNNING else None,
            is_tpu=is_tpu,
            # Only TPU nodes have no name in DNS. Tests need the addresses to differ, no more.
            address=f"10.0.{self._last_number % 250}.1" if is_tpu else "",
        )
        self._vms[name, create.zone] = (job.set_id, vm)
        self._metadata[name, create.zone] = dict(metadata)

    def delete(self, vm: Vm) -> bool:
        """Delete the VM. Idempotent.

        Return whether it is gone: a slow fleet needs `settle` first.
        """
        with self._lock:
            current = self._current(vm)
            if current is None:
                return True
            if self.is_slow:
                self._put(replace(current, status=VmStatus.STOPPING))
                return False
            del self._vms[vm.name, vm.zone]
            return True

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Replace the directive in the VM's metadata.

        Return False if the VM is gone, or its metadata was changed since it was listed: each change
        gives it another fingerprint.
        """
        with self._lock:
            current = self._current(vm)
            if current is None or current.fingerprint != vm.fingerprint:
                return False
            fingerprint = str(int(vm.fingerprint) + 1)
            self._put(replace(current, directive=directive, fingerprint=fingerprint))
            return True

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job, with another directive and metadata. Returns as
        `write_directive`.
        """
        del job
        vm = hand_over.vm
        with self._lock:
            is_written = self.write_directive(vm, hand_over.create.directive)
            if is_written:
                self._metadata[vm.name, vm.zone] = dict(metadata)
            return is_written

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return the time of the last `beat`."""
        with self._lock:
            return self._heartbeats.get(vm.instance_id)

    def beat(self, name: str) -> None:
        """Let the VM's agent write a heartbeat."""
        with self._lock:
            self._heartbeats[self._only(name).instance_id] = self.clock()

    def reported_metric(self, vm: Vm) -> str | None:
        """Return what the last `report_metric` wrote."""
        with self._lock:
            return self._metrics.get(vm.instance_id) if self._current(vm) else None

    def report_metric(self, name: str, text: str) -> None:
        """Let the VM's agent write a guest attribute."""
        with self._lock:
            self._metrics[self._only(name).instance_id] = text

    def release(self, job: Job) -> bool:
        """Return True: in memory, a job has no resources but its VMs."""
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return no output: VMs in memory have no console."""
        return "", start

    def admit(self, name: str) -> None:
        """Give the queued slice its capacity: it is now running, and has the id of a new node."""
        with self._lock:
            self._last_number += 1
            vm = replace(
                self._only(name),
                instance_id=str(self._last_number),
                status=VmStatus.RUNNING,
                started_at=self.clock(),
            )
            self._put(vm)

    def expire(self, name: str) -> None:
        """Let the queued request expire without capacity."""
        with self._lock:
            self._put(replace(self._only(name), status=VmStatus.REFUSED))

    def settle(self) -> None:
        """Complete all creations and deletions."""
        with self._lock:
            for _, vm in list(self._vms.values()):
                if vm.status is VmStatus.STOPPING:
                    del self._vms[vm.name, vm.zone]
                elif vm.status is VmStatus.CREATING:
                    self._put(replace(vm, status=VmStatus.RUNNING, started_at=self.clock()))

    def stop(self, name: str, loss: LossCause = LossCause.GONE, *, zone: str | None = None) -> None:
        """Stop the VM as a host event does: it still exists, but does not run."""
        with self._lock:
            self._put(replace(self._only(name, zone), status=VmStatus.STOPPED, loss=loss))

    def vanish(self, name: str) -> None:
        """Remove the VM without a trace."""
        with self._lock:
            vm = self._only(name)
            del self._vms[vm.name, vm.zone]

    def metadata(self, name: str) -> Mapping[str, str]:
        """Return the metadata of the VM, by key."""
        with self._lock:
            vm = self._only(name)
            return self._metadata[vm.name, vm.zone]

    def _only(self, name: str, zone: str | None = None) -> Vm:
        """Return the VM of this name, in this zone if one is given.

        Raises ValueError unless there is exactly one.
        """
        (vm,) = [vm for _, vm in self._vms.values() if vm.name == name and zone in (None, vm.zone)]
        return vm

    def _current(self, vm: Vm) -> Vm | None:
        """Return the listed VM as it is now; None if no VM with its instance id exists any more."""
        self._must_reach(vm.zone)
        _, current = self._vms.get((vm.name, vm.zone), ("", None))
        if current is None or current.instance_id != vm.instance_id:
            return None
        return current

    def _must_reach(self, zone: str) -> None:
        """Raise ZonesUnreachableError if the zone cannot be reached."""
        if zone in self.unreachable_zones:
            raise ZonesUnreachableError(listed=(), zones=[zone])

    def _put(self, vm: Vm) -> None:
        """Replace the VM of this name and zone. Its job stays."""
        owner, _ = self._vms[vm.name, vm.zone]
        self._vms[vm.name, vm.zone] = (owner, vm)


def _stockout(message: str) -> NotCreated:
    """Return the outcome of a request for which its zone has no capacity, with Compute Engine's
    code.
    """
    return NotCreated(CapacityErrorKind.STOCKOUT, "ZONE_RESOURCE_POOL_EXHAUSTED", message)
