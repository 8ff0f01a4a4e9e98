"""A VM's states over time: each request and each fault is a thread that takes the VM's transition_lock and walks it through.

Turns keep two requests for one VM apart as Compute does: the second happens after the first. A crash pulls the cable
before it waits for its transition_lock, so it cuts any shutdown short. Whatever was set up for one power-on (run_limit_timer, maintenance,
the death of its processes) names it by `boots` and does nothing once that has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from emulators.compute.api_errors import OperationError, internal_error, too_few_created
from emulators.compute.catalog import Links
from emulators.compute.injected_faults import FaultInjector
from emulators.compute.instances import Instance, Status
from emulators.compute.operations import SYSTEM, Operation, OperationStore
from emulators.compute.vm_metadata import NO_MAINTENANCE
from emulators.compute.vm_power import VmPower

PREEMPTION_NOTICE_S: Final = 30.0
"""Source: Compute gives a Spot VM 30 s between soft-off and mechanical off."""


@dataclass(frozen=True, slots=True)
class Timing:
    """`step_s` each change of state takes; `shutdown_s` a metadata_tree has to end; `maintenance_notice_s` from the event in
    the metadata to the stop (60 s, with GPUs an hour, on Google's side)."""

    step_s: float = 0.2
    shutdown_s: float = 30.0
    maintenance_notice_s: float = 5.0


SystemEventSink = Callable[[Operation, Instance], None]
"""Where the audit log's entry of something that happened to a VM unasked goes."""


def discard_system_event(_operation: Operation, _instance: Instance) -> None:
    """The sink of a project that exports no log."""


class Registry(Protocol):
    def forget(self, instance: Instance) -> None:
        """The name is free again."""
        ...


class Lifecycle:
    def __init__(
        self,
        operations: OperationStore,
        faults: FaultInjector,
        power: VmPower,
        timing: Timing,
        links: Links,
        registry: Registry,
        system_events: SystemEventSink = discard_system_event,
    ) -> None:
        self.operations, self.faults, self.power, self.timing = operations, faults, power, timing
        self.links, self.registry, self.system_events = links, registry, system_events

    # Requests

    def insert(
        self, operation: Operation, instances: Sequence[tuple[Instance, Operation]], error: OperationError | None
    ) -> None:
        """Brings new VMs up, all or none. Each has an operation of its own, which for a single insert is `operation`.
        Their turns are already taken, so that nothing else happens to them meanwhile."""
        self._spawn(self._insert, operation, instances, error)

    def delete(self, operation: Operation, instance: Instance) -> None:
        self._spawn(self._with_turn, operation, instance, self._delete)

    def stop(self, operation: Operation, instance: Instance) -> None:
        self._spawn(self._with_turn, operation, instance, self._stop)

    def start(self, operation: Operation, instance: Instance) -> None:
        self._spawn(self._with_turn, operation, instance, self._start)

    def reset(self, operation: Operation, instance: Instance) -> None:
        self._spawn(self._with_turn, operation, instance, self._reset)

    def finish_soon(self, operation: Operation) -> None:
        """For what has taken effect already, as a change of metadata has."""
        self._spawn(self._finish_soon, operation)

    # Faults

    def preempt(self, instance: Instance, notice_s: float | None = None) -> Operation:
        """Announced; after the notice that the VM asked for, soft-off; half a minute later, off. With `notice_s`:
        soft-off at once, and off after that time."""
        operation = self._event("compute.instances.preempted", instance, "Instance was preempted.")
        if instance.metadata_tree is not None:
            instance.metadata_tree.put("instance/preempted", "TRUE")
        ahead_s = instance.properties.scheduling.preemption_notice_s if notice_s is None else 0
        grace_s = PREEMPTION_NOTICE_S if notice_s is None else notice_s
        self._spawn(self._preempt, operation, instance, instance.boots, ahead_s, grace_s)
        return operation

    def maintain(self, instance: Instance, notice_s: float | None, requested: Operation | None = None) -> Operation:
        """The VM is moved or ended, as it asked to be. `requested` is the user's own operation, done with this."""
        policy = instance.properties.scheduling.on_host_maintenance
        verb = "terminateOnHostMaintenance" if policy == "TERMINATE" else "migrateOnHostMaintenance"
        operation = self._event(f"compute.instances.{verb}", instance, "Instance is subject to host maintenance.")
        notice = self.timing.maintenance_notice_s if notice_s is None else notice_s
        if instance.metadata_tree is not None:
            instance.metadata_tree.put("instance/maintenance-event", f"{policy}_ON_HOST_MAINTENANCE")
        self._spawn(self._maintain, operation, requested, instance, instance.boots, notice, policy)
        return operation

    def crash(self, instance: Instance) -> Operation:
        """Host error: gone at once, no notice."""
        vm = instance.vm
        operation = self._event("compute.instances.hostError", instance, "Instance terminated by Compute Engine.")
        if vm is not None:
            vm.power_off()
        self._spawn(self._with_turn, operation, instance, lambda each: self._host_error(each, operation))
        return operation

    # Steps, each on a thread of its own

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name="lifecycle", daemon=True).start()

    def _pause(self) -> None:
        time.sleep(self.timing.step_s + self.faults.now.slow_s)

    def _event(self, type_: str, instance: Instance, message: str) -> Operation:
        operation = self.operations.begin(
            type_, zone=instance.zone, target_link=instance.link(self.links), target_id=instance.id, user=SYSTEM
        )
        self.operations.start(operation, message)
        return operation

    def _with_turn(self, operation: Operation, instance: Instance, step: Callable[[Instance], None]) -> None:
        """One step of one VM; nothing is left to do where the VM has gone meanwhile."""
        if operation.status == "PENDING":
            self.operations.start(operation)
        with instance.transition_lock, self._finishing(operation):
            if not instance.deleted:
                step(instance)

    @contextmanager
    def _finishing(self, operation: Operation) -> Iterator[None]:
        """The operation ends however the step does; an exception here is the emulator's bug, and shown as well."""
        try:
            yield
        except Exception as error:
            self.operations.finish(operation, [internal_error(f"Internal error: {error}")])
            raise
        self.operations.finish(operation)

    def _finish_soon(self, operation: Operation) -> None:
        self.operations.start(operation)
        time.sleep(self.faults.now.slow_s)
        self.operations.finish(operation)

    def _insert(
        self, operation: Operation, instances: Sequence[tuple[Instance, Operation]], error: OperationError | None
    ) -> None:
        for each in {operation.name: operation, **{own.name: own for _, own in instances}}.values():
            self.operations.start(each)
        try:
            self._pause()
            if error is None:
                for instance, _ in instances:
                    instance.status = Status.STAGING
                self._pause()
                for instance, _ in instances:
                    self._power_on(instance)
        except OSError as failure:
            error = internal_error(f"The VM could not be started: {failure}")
        for instance, own in instances:
            if error is not None:
                self._remove(instance, grace_s=0)
            instance.transition_lock.release()
            if own is not operation:
                self.operations.finish(own, [error] if error else [])
        is_bulk = any(own is not operation for _, own in instances)
        errors = [error, too_few_created(len(instances))] if error and is_bulk else [error] if error else []
        self.operations.finish(operation, errors)

    def _delete(self, instance: Instance) -> None:
        instance.status = Status.STOPPING
        self.power.off(instance, self.timing.shutdown_s)
        self._pause()
        self._remove(instance, grace_s=0)

    def _remove(self, instance: Instance, grace_s: float) -> None:
        self.power.off(instance, grace_s)
        instance.deleted = True
        self.registry.forget(instance)
        instance.disk.destroy()

    def _stop(self, instance: Instance) -> None:
        if instance.status is Status.RUNNING:
            self._halt(instance, self.timing.shutdown_s)

    def _halt(self, instance: Instance, grace_s: float, event: Operation | None = None) -> None:
        """`event`: what stops it unasked; the audit log tells of it as soon as the VM is seen to stop."""
        instance.status = Status.STOPPING
        if event is not None:
            self.system_events(event, instance)
        self.power.off(instance, grace_s)
        self._pause()
        instance.status = Status.TERMINATED

    def _start(self, instance: Instance) -> None:
        if instance.status is Status.TERMINATED:
            instance.status = Status.STAGING
            self._pause()
            self._power_on(instance)

    def _power_on(self, instance: Instance) -> None:
        self.power.on(instance, died=self._died, burnt=self._burnt)
        instance.status = Status.RUNNING

    def _reset(self, instance: Instance) -> None:
        """Hard: no shutdown, the same disk, RUNNING all the while."""
        if instance.status is Status.RUNNING:
            self.power.off(instance, 0)
            self._power_on(instance)

    def _end(self, instance: Instance, grace_s: float, event: Operation | None = None) -> None:
        """What `instanceTerminationAction` says, for a preemption (`event`) and for the run_limit_timer."""
        if instance.status is not Status.RUNNING:
            return
        self._halt(instance, grace_s, event)
        if instance.properties.scheduling.termination_action == "DELETE":
            self._remove(instance, grace_s=0)

    def _preempt(self, operation: Operation, instance: Instance, boot: int, ahead_s: float, grace_s: float) -> None:
        time.sleep(ahead_s)

        def step(instance: Instance) -> None:
            if instance.boots == boot:
                self._end(instance, grace_s, operation)

        self._with_turn(operation, instance, step)

    def _maintain(
        self,
        operation: Operation,
        requested: Operation | None,
        instance: Instance,
        boot: int,
        notice_s: float,
        policy: str,
    ) -> None:
        time.sleep(notice_s)

        def step(instance: Instance) -> None:
            if instance.boots != boot or instance.status is not Status.RUNNING:
                return
            if policy == "TERMINATE":
                self._halt(instance, self.timing.shutdown_s, operation)
                self._restart_automatically(instance)
            elif instance.metadata_tree is not None:
                self.system_events(operation, instance)
                instance.metadata_tree.put("instance/maintenance-event", NO_MAINTENANCE)

        self._with_turn(operation, instance, step)
        if requested is not None:
            self.operations.finish(requested)

    def _host_error(self, instance: Instance, event: Operation) -> None:
        if instance.status in (Status.RUNNING, Status.STOPPING):
            self._halt(instance, 0, event)
            self._restart_automatically(instance)

    def _restart_automatically(self, instance: Instance) -> None:
        if instance.properties.scheduling.automatic_restart:
            message = "Instance was automatically restarted by Compute Engine."
            with self._finishing(self._event("compute.instances.automaticRestart", instance, message)):
                self._start(instance)

    def _died(self, instance: Instance, boot: int) -> None:
        if instance.boots == boot and instance.status is Status.RUNNING:
            self.crash(instance)

    def _burnt(self, instance: Instance, boot: int) -> None:
        """`maxRunDuration` is over."""
        verb = instance.properties.scheduling.termination_action.lower()
        operation = self._event(verb, instance, "Instance reached the end of its maxRunDuration.")

        def step(instance: Instance) -> None:
            if instance.boots == boot:
                self._end(instance, self.timing.shutdown_s)

        self._spawn(self._with_turn, operation, instance, step)
