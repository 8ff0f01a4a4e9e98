"""A model of the Compute Engine API: zonal names, idempotent requests, and operations that take
time.

    insert ──► operation ──create_s──► all VMs RUNNING, or none and a stockout

It fulfils the same contract as `memory.fleet`, and is stricter in three ways: VMs in two zones may
have the same name, an insert may fail after it was accepted, and a request id stays used: repeating
it returns the first result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm, VmStatus
from trainmaster.core.model.vm_names import job_label, replica_id_from_vm_name
from trainmaster.core.reconcile.steps import Create, HandOver
from trainmaster.core.timeouts import CHAIN_S
from trainmaster.ports import Created, CreateOutcome, NotCreated, Pending
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.vm import SimVm, VmPool

INSERT_WAIT_S: Final = 20.0
"""Time for which a call of `create` waits for its operation, as the real adapter does."""
DELETE_WAIT_S: Final = 3.0
"""Time for which a call of `delete` waits for its operation."""
CREATE_S: Final = (8.0, 25.0)
"""Shortest and longest time until the VMs of an insert run."""
SLOW_CREATE_S: Final = (40.0, 150.0)
"""Shortest and longest time until the VMs run in the fault `slow_create`: longer than a call waits.
"""
DELETE_S: Final = (2.0, 35.0)
"""Shortest and longest time of the shutdown of a deleted VM."""
EXPIRY_SLACK_S: Final = 3600.0
"""Time between the limits of a job and the maximum run duration of its VMs."""
STOPS: Final = (VmStatus.STOPPING, VmStatus.STOPPED)
"""States of a VM that does not run, and will not again."""


@dataclass(slots=True)
class _Operation:
    """One insert. It fails for all of its VMs, or for none."""

    done_s: float
    """Virtual time of its end."""
    error: NotCreated | None
    vms: list[SimVm]
    is_done: bool = False


@dataclass(slots=True)
class SimFleet:
    """Adapter of `trainmaster.ports.Fleet`. Calls wait in virtual time, in which other things
    happen.
    """

    context: Context
    pool: VmPool
    replays_requests: bool = True
    """Whether a request id returns its first result forever, as in Compute Engine, or until one of
    its VMs is gone.
    """
    on_create: Callable[[SimVm], None] = lambda _: None
    """Called when the creation of a VM begins."""
    on_delete: Callable[[SimVm], None] = lambda _: None
    """Called before a VM is deleted through this API."""
    _operations: dict[str, _Operation] = field(default_factory=dict)
    """Key of a request → the insert that it started."""
    _last_instance_id: int = 1000

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        """Return the VMs with this id in their label. No zone is ever unreachable here."""
        del tpu_zones, zones
        return tuple(vm.observed for vm in self.pool.present.values() if vm.label == job_id)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        """Return all VMs, each with the label that names its job."""
        del zones
        return tuple(
            LabelledVm(vm.observed, job_label(vm.label)) for vm in self.pool.present.values()
        )

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        """Create the VMs of a request, and return its outcome.

        Pending: VMs of an earlier generation still have the names, or the operation takes longer
        than the call waits; the caller repeats the request.
        """
        existing = self._existing(create)
        operation = self._operation_of(create.request_key(job.job_id))
        if operation is None and existing:
            if any(_is_outdated(vm, create) for vm in existing.values()):
                return Pending()  # it must be deleted before another one of its name is created
            create = create.without(existing)
            if not create.names:
                return Created()
            # The request without the VMs that exist has a key of its own.
            operation = self._operation_of(create.request_key(job.job_id))
        if operation is None:
            operation = self._insert(job, create, metadata)
        if not operation.is_done:
            self.context.sleep(min(INSERT_WAIT_S, max(0.0, operation.done_s - self.context.now)))
        if not operation.is_done:
            return Pending()
        return operation.error or Created()

    def delete(self, vm: Vm) -> bool:
        """Begin to delete the VM, unless it is gone. Return whether it is gone after a
        short wait.
        """
        existing = self._find(vm)
        if existing is None:
            return True
        self.on_delete(existing)
        self.pool.shut_down(existing, self.context.between(*DELETE_S), stays=False)
        self.context.sleep(DELETE_WAIT_S)
        return existing.is_gone

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Replace the directive, the order to the VM's agent, and let the agents read it.

        Return False if the VM is gone, or its metadata was changed since it was listed: each change
        gives it another fingerprint.
        """
        existing = self._find(vm)
        if existing is None or existing.observed.fingerprint != vm.fingerprint:
            return False
        fingerprint = str(int(vm.fingerprint) + 1)
        existing.observed = replace(existing.observed, directive=directive, fingerprint=fingerprint)
        self.context.log(
            "directed", vm.name, directive.attempt, directive.incarnation, directive.action
        )
        for agent in existing.agents:
            agent.wake()
        return True

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to this job, with another directive and metadata. Returns as
        `write_directive`.
        """
        existing = self._find(hand_over.vm)
        if existing is None or existing.observed.fingerprint != hand_over.vm.fingerprint:
            return False
        existing.metadata = metadata
        existing.job_id = job.job_id
        self.context.log("handed over", hand_over.vm.name, hand_over.create.directive.tenure)
        return self.write_directive(hand_over.vm, hand_over.create.directive)

    def reported_metric(self, vm: Vm) -> str | None:  # noqa: ARG002 - the port's signature
        """Return None: simulated jobs are not trials.

        Tuning jobs have their own histories in tests/sim.
        """
        return None

    def last_heartbeat(self, vm: Vm) -> datetime | None:
        """Return the time of the latest heartbeat, as if each agent wrote one at every moment at
        which it is up; of the hosts of a TPU slice, that of the host that is silent longest.
        """
        existing = self._find(vm)
        if existing is None or not existing.agents:
            return None
        off_since_s = (agent.off_since_s for agent in existing.agents)
        silent_s = max(0.0 if off_s is None else self.context.now - off_s for off_s in off_since_s)
        return self.context.scheduler.clock() - timedelta(seconds=silent_s)

    def release(self, job: Job) -> bool:
        """Return True: a simulated job has nothing but VMs to release."""
        del job
        return True

    def serial_output(self, vm: Vm, start: int) -> tuple[str, int]:
        """Return no output: simulated VMs print nothing."""
        del vm
        return "", start

    def _existing(self, create: Create) -> dict[str, SimVm]:
        """Return the VMs that have the requested names in the requested zone, by name."""
        present = self.pool.present
        return {
            name: present[name, create.zone]
            for name in create.names
            if (name, create.zone) in present
        }

    def _find(self, vm: Vm) -> SimVm | None:
        """Return the simulated VM; None: it is gone, and a later one may have its name."""
        existing = self.pool.present.get((vm.name, vm.zone))
        if existing is None or existing.observed.instance_id != vm.instance_id:
            return None
        return existing

    def _operation_of(self, request_key: str) -> _Operation | None:
        """Return the operation that this request id started earlier, whatever happened to its VMs
        since.
        """
        operation = self._operations.get(request_key)
        if operation and not self.replays_requests and any(vm.is_gone for vm in operation.vms):
            return operation if operation.error else None
        return operation

    def _insert(self, job: Job, create: Create, metadata: Mapping[str, str]) -> _Operation:
        """Begin an insert, and draw its faults: an error at once, a long wait, a stockout at the
        end, or only some of the VMs.
        """
        context = self.context
        faults = context.faults
        key = create.request_key(job.job_id)
        error = self._draw_immediate_error(create.zone)
        if error is not None:
            self._operations[key] = _Operation(context.now, error, vms=[], is_done=True)
            return self._operations[key]
        span_s = SLOW_CREATE_S if context.chance(faults.slow_create) else CREATE_S
        create_s = context.between(*span_s)
        error = _stockout(create.zone) if context.chance(faults.stockout_late) else None
        names = create.names
        if create.partial and len(names) > 1 and context.chance(faults.partial):
            names = names[: context.rng.randrange(1, len(names))]
        vms = [self._add_vm(job, create, name, metadata) for name in names]
        operation = self._operations[key] = _Operation(context.now + create_s, error, vms)
        context.log("insert", create.zone, f"round {create.round}", *names)
        context.scheduler.after(create_s, lambda: self._finish(operation))
        return operation

    def _draw_immediate_error(self, zone: str) -> NotCreated | None:
        """Return the error that an insert gets at once; None: it is accepted."""
        context = self.context
        faults = context.faults
        if context.chance(faults.stockout):
            return _stockout(zone)
        if context.chance(faults.quota):
            return NotCreated(
                CapacityErrorKind.QUOTA, "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0"
            )
        if context.chance(faults.internal):
            return NotCreated(
                CapacityErrorKind.INTERNAL, "INTERNAL_ERROR", "Internal error. Please try again"
            )
        if context.chance(faults.denied):
            return NotCreated(
                CapacityErrorKind.DENIED,
                "PERMISSIONS_ERROR",
                "Required 'compute.instances.create' permission",
            )
        return None

    def _add_vm(self, job: Job, create: Create, name: str, metadata: Mapping[str, str]) -> SimVm:
        """Add a VM that is being created. Compute Engine deletes it at the latest some time after
        all limits of its job; if the job keeps its machines for others, after those of the whole
        chain of jobs that use them one after the other.
        """
        self._last_instance_id += 1
        document = json.loads(metadata["trainmaster-directive"])
        observed = Vm(
            name=name,
            zone=create.zone,
            instance_id=str(self._last_instance_id),
            status=VmStatus.CREATING,
            replica_id=replica_id_from_vm_name(name),
            vm_generation=create.vm_generation,
            directive=Directive.from_metadata(document),
            fingerprint="1",
            created_at=self.context.scheduler.clock(),
            is_tpu=create.group.tpu is not None,
        )
        limits = job.plan.limits
        job_max_s = limits.max_running_s + (limits.max_wait_s or 0)
        chain_s = 0 if job.plan.keep_s is None else CHAIN_S
        expires_s = self.context.now + job_max_s + EXPIRY_SLACK_S + chain_s
        vm = SimVm(observed, job.job_id, metadata, self.context.now, expires_s, create.group.hosts)
        vm.set_id = job.set_id  # a job that takes the kept machine set takes over this VM
        self.pool.add(vm)
        self.on_create(vm)
        return vm

    def _finish(self, operation: _Operation) -> None:
        """Start the VMs of an insert or, if it failed, remove them."""
        operation.is_done = True
        for vm in operation.vms:
            if vm.is_gone or vm.observed.status is not VmStatus.CREATING:
                continue
            if operation.error:
                self.pool.remove(vm, "stockout")
            else:
                self.pool.start(vm)


def _is_outdated(vm: SimVm, create: Create) -> bool:
    """Whether a VM cannot be the one requested: it is of an earlier generation, or has stopped."""
    observed = vm.observed
    return observed.vm_generation < create.vm_generation or observed.status in STOPS


def _stockout(zone: str) -> NotCreated:
    return NotCreated(
        CapacityErrorKind.STOCKOUT,
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        f"{zone} does not have enough resources",
    )
