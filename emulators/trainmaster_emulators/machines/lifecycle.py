"""The states of VMs over time. Each request and each fault runs on its own thread.

A thread holds the VM's `transition_lock` during its transition. Two requests for one VM therefore
happen one after the other, as at Google. A crash powers the VM off before it takes the lock, so it
cuts a running shutdown short. An event that was planned for one power-on (run limit, maintenance,
unexpected end) compares `boots` and does nothing after a later power-on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from trainmaster_emulators.machines.catalog import Links
from trainmaster_emulators.machines.compute_errors import (
    OperationError,
    internal_error,
    preempted_at_start,
    too_few_created,
)
from trainmaster_emulators.machines.injected_faults import FaultInjector
from trainmaster_emulators.machines.instance_registry import InstanceRegistry
from trainmaster_emulators.machines.instances import BEING_CREATED, Instance, Status
from trainmaster_emulators.machines.operations import SYSTEM, Operation, OperationStore
from trainmaster_emulators.machines.vm_metadata import NO_MAINTENANCE
from trainmaster_emulators.machines.vm_power import VmPower
from trainmaster_emulators.machines.vm_transitions import (
    SystemEventSink,
    Timing,
    VmTransitions,
    discard_system_event,
)

PREEMPTION_NOTICE_S: Final = 30.0
"""Source: Compute gives a Spot VM 30 s between the ACPI signal and power-off."""


class Lifecycle:
    """Carries out the API's requests (`compute.cloud`) and faults, each on a thread of its own.

    Public methods return at once; their operation ends when the thread has done the work.
    """

    def __init__(
        self,
        operations: OperationStore,
        faults: FaultInjector,
        power: VmPower,
        timing: Timing,
        links: Links,
        registry: InstanceRegistry,
        system_events: SystemEventSink = discard_system_event,
    ) -> None:
        self.operations = operations
        self.faults = faults
        self.timing = timing
        self.links = links
        self.system_events = system_events
        self._random = Random()  # noqa: S311 - durations, not secrets
        self._late_error: Callable[[Instance], OperationError | None] = lambda _: None
        self.vms = VmTransitions(
            power,
            timing,
            pause=lambda: self._pause(self.timing.step_s),
            pause_deletion=lambda: self._pause(self.timing.deletion_s(self._random)),
            registry=registry,
            system_events=system_events,
            on_unexpected_end=self._on_unexpected_end,
            on_run_limit=self._on_run_limit,
        )

    # Requests

    def insert(
        self,
        operation: Operation,
        instances: Sequence[tuple[Instance, Operation]],
        error: OperationError | None,
        min_count: int,
    ) -> None:
        """Create VMs, at least `min_count` or none.

        The caller has acquired their `transition_lock`s; they are released at the end.

        Each VM has its own operation, which for a single insert is `operation`. `error`: why the
        creation fails.
        """
        self._spawn(self._insert, operation, instances, error, min_count)

    def begin(
        self, operation: Operation, instance: Instance, step: Callable[[Instance], None]
    ) -> None:
        """Begin a transition of `vms`, such as `vms.stop`."""
        self._spawn(self._transition, operation, instance, step)

    def finish_soon(self, operation: Operation) -> None:
        """Finish the operation of a change that is in effect already, such as a change
        of metadata.
        """
        self._spawn(self._finish_soon, operation)

    # Faults

    def preempt(self, instance: Instance, notice_s: float | None = None) -> Operation:
        """Announce a preemption in the metadata, then shut the VM down.

        Without `notice_s`, the shutdown begins after the notice that the VM requested, and lasts 30
        s at most. With `notice_s`, it begins at once and lasts that long at most. The insert of a
        VM that does not run yet fails; it may have been powered on at this moment.
        """
        operation = self._begin_event(
            "compute.instances.preempted", instance, "Instance was preempted."
        )
        if instance.metadata_tree is not None:
            instance.metadata_tree.put("instance/preempted", "TRUE")
        if instance.status in BEING_CREATED:
            instance.preemption = operation
            # If it is too late to keep the VM from being powered on, this boot is ended.
            boot = instance.boots + 1
            self._spawn(self._preempt, operation, instance, boot, 0, PREEMPTION_NOTICE_S)
            return operation
        ahead_s = instance.properties.scheduling.preemption_notice_s if notice_s is None else 0
        grace_s = PREEMPTION_NOTICE_S if notice_s is None else notice_s
        self._spawn(self._preempt, operation, instance, instance.boots, ahead_s, grace_s)
        return operation

    def maintain(
        self, instance: Instance, notice_s: float | None, requested: Operation | None = None
    ) -> Operation:
        """Announce maintenance in the metadata, then migrate or stop the VM, as its
        `onHostMaintenance` says.

        `requested`: the operation of the user's own request, which is finished as well.
        """
        policy = instance.properties.scheduling.on_host_maintenance
        verb = "terminateOnHostMaintenance" if policy == "TERMINATE" else "migrateOnHostMaintenance"
        operation = self._begin_event(
            f"compute.instances.{verb}", instance, "Instance is subject to host maintenance."
        )
        notice = self.timing.maintenance_notice_s if notice_s is None else notice_s
        if instance.metadata_tree is not None:
            instance.metadata_tree.put(
                "instance/maintenance-event", f"{policy}_ON_HOST_MAINTENANCE"
            )
        self._spawn(self._maintain, operation, requested, instance, instance.boots, notice, policy)
        return operation

    def crash(self, instance: Instance) -> Operation:
        """Simulate a host error: the VM loses power at once, without notice."""
        vm = instance.vm
        operation = self._begin_event(
            "compute.instances.hostError", instance, "Instance terminated by Compute Engine."
        )
        if vm is not None:
            vm.power_off()
        self._spawn(
            self._transition,
            operation,
            instance,
            lambda instance: self._host_error(instance, operation),
        )
        return operation

    def fail_late(self, share: float, error_of: Callable[[Instance], OperationError]) -> None:
        """Let this share of the inserts fail at the end of their operation."""
        self._late_error = lambda instance: (
            error_of(instance) if self._random.random() < share else None
        )

    # On threads

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name="lifecycle", daemon=True).start()

    def _pause(self, duration_s: float) -> None:
        time.sleep(duration_s + self.faults.now.slow_s)

    def _begin_event(self, type_: str, instance: Instance, message: str) -> Operation:
        operation = self.operations.begin(
            type_,
            scope=("zones", instance.zone),
            target_link=instance.link(self.links),
            target_id=instance.id,
            user=SYSTEM,
        )
        self.operations.start(operation, message)
        return operation

    def _transition(
        self, operation: Operation, instance: Instance, step: Callable[[Instance], None]
    ) -> None:
        """Run one step of a VM under its lock and finish the operation.

        Does nothing if the VM has been deleted.
        """
        if operation.status == "PENDING":
            self.operations.start(operation)
        with instance.transition_lock, self._finishing(operation):
            if not instance.deleted:
                step(instance)

    @contextmanager
    def _finishing(self, operation: Operation) -> Iterator[None]:
        """Finish the operation after the block.

        An exception is a bug of the emulator: report it as well.
        """
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
        self,
        operation: Operation,
        instances: Sequence[tuple[Instance, Operation]],
        error: OperationError | None,
        min_count: int,
    ) -> None:
        operations = {operation.name: operation, **{own.name: own for _, own in instances}}
        for pending in operations.values():
            self.operations.start(pending)
        if error is None:
            error = self._create([instance for instance, _ in instances], min_count)
        else:
            self._pause(self.timing.creation_step_s(self._random))
        for instance, own in instances:
            never_ran = instance.boots == 0
            own_error = error or (preempted_at_start() if never_ran else None)
            if own_error is not None:
                self._abandon(instance)
            instance.transition_lock.release()
            if own is not operation:
                self.operations.finish(own, [own_error] if own_error else [])
        errors = [error] if error else []
        is_bulk = any(own is not operation for _, own in instances)
        if error and is_bulk:
            errors.append(too_few_created(min_count))
        self.operations.finish(operation, errors)

    def _create(self, instances: Sequence[Instance], min_count: int) -> OperationError | None:
        """Take the VMs through PROVISIONING and STAGING, and power on those that are not preempted
        meanwhile.

        Return the error if fewer than `min_count` can run; some of the VMs may run then.
        """
        step_s = self.timing.creation_step_s(self._random)
        self._pause(step_s)
        for instance in instances:
            instance.status = Status.STAGING
        self._pause(step_s)
        error = self._late_error(instances[0])
        if error is not None:
            return error
        remaining = [instance for instance in instances if instance.preemption is None]
        if len(remaining) < min_count:
            return preempted_at_start()
        try:
            for instance in remaining:
                self.vms.power_on(instance)
        except OSError as failure:
            return internal_error(f"The VM could not be started: {failure}")
        return None

    def _abandon(self, instance: Instance) -> None:
        """Delete a VM that was not created. One that was preempted meanwhile ends as one that ran:
        it may stay, with its name, although its insert failed.
        """
        if instance.preemption is not None:
            self.system_events(instance.preemption, instance)
        action = instance.properties.scheduling.termination_action
        if instance.preemption is not None and action != "DELETE":
            self.vms.power.off(instance, grace_s=0)
            instance.status = Status.TERMINATED
        else:
            self.vms.remove(instance)

    def _preempt(
        self, operation: Operation, instance: Instance, boot: int, ahead_s: float, grace_s: float
    ) -> None:
        """Shut the VM down after `ahead_s`, and power it off `grace_s` later, if this boot still
        runs.
        """
        time.sleep(ahead_s)

        def step(instance: Instance) -> None:
            if instance.boots == boot:
                self.vms.end(instance, grace_s, operation)

        self._transition(operation, instance, step)

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
                self.vms.halt(instance, self.timing.shutdown_s, operation)
                self._restart_automatically(instance)
            elif instance.metadata_tree is not None:
                self.system_events(operation, instance)
                instance.metadata_tree.put("instance/maintenance-event", NO_MAINTENANCE)

        self._transition(operation, instance, step)
        if requested is not None:
            self.operations.finish(requested)

    def _host_error(self, instance: Instance, event: Operation) -> None:
        if instance.status in (Status.RUNNING, Status.STOPPING):
            self.vms.halt(instance, grace_s=0, event=event)
            self._restart_automatically(instance)

    def _restart_automatically(self, instance: Instance) -> None:
        if instance.properties.scheduling.automatic_restart:
            message = "Instance was automatically restarted by Compute Engine."
            with self._finishing(
                self._begin_event("compute.instances.automaticRestart", instance, message)
            ):
                self.vms.start(instance)

    def _on_unexpected_end(self, instance: Instance, boot: int) -> None:
        if instance.boots == boot and instance.status is Status.RUNNING:
            self.crash(instance)

    def _on_run_limit(self, instance: Instance, boot: int) -> None:
        verb = instance.properties.scheduling.termination_action.lower()
        operation = self._begin_event(
            verb, instance, "Instance reached the end of its maxRunDuration."
        )

        def step(instance: Instance) -> None:
            if instance.boots == boot:
                self.vms.end(instance, self.timing.shutdown_s)

        self._spawn(self._transition, operation, instance, step)
