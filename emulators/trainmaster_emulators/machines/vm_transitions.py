"""The transitions of one VM from state to state. The caller holds the VM's `transition_lock`.

    PROVISIONING ─► STAGING ─► RUNNING ─► STOPPING ─► TERMINATED ─► (start) STAGING …
                                              └────► deleted

These functions take as long as the transition takes. `lifecycle` runs them on threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from trainmaster_emulators.machines.instance_registry import InstanceRegistry
from trainmaster_emulators.machines.instances import Instance, Status
from trainmaster_emulators.machines.operations import Operation
from trainmaster_emulators.machines.vm_power import BootEvent, VmPower
from trainmaster_emulators.realism.profile import Span


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a VM's transitions."""

    step_s: float = 0.2
    """Each change of state."""
    shutdown_s: float = 30.0
    """Time for the guest to shut down before it is powered off."""
    maintenance_notice_s: float = 5.0
    """From the maintenance event in the VM's metadata to the stop.

    At Google it is 60 s, with GPUs an hour.
    """
    create: Span | None = None
    """From the insert to RUNNING. None: two changes of state."""
    delete: Span | None = None
    """From power-off to the end of the deletion. None: one change of state."""

    def creation_step_s(self, random: Random) -> float:
        """Return the duration of PROVISIONING, and of STAGING."""
        return self.create.draw(random) / 2 if self.create else self.step_s

    def deletion_s(self, random: Random) -> float:
        return self.delete.draw(random) if self.delete else self.step_s


SystemEventSink = Callable[[Operation, Instance], None]
"""Receives the audit log's entries about events that the user did not request."""


def discard_system_event(_operation: Operation, _instance: Instance) -> None:
    """The sink of a project that does not export its audit log."""


@dataclass(frozen=True, slots=True)
class VmTransitions:
    """Changes of the status of VMs, each with its effects and its duration."""

    power: VmPower
    timing: Timing
    pause: Callable[[], None]
    """Waits as long as one change of state takes."""
    pause_deletion: Callable[[], None]
    """Waits as long as the deletion of a VM takes that is powered off."""
    registry: InstanceRegistry
    system_events: SystemEventSink
    on_unexpected_end: BootEvent
    """Called when the VM's processes end although it was not powered off."""
    on_run_limit: BootEvent
    """Called when `maxRunDuration` is over."""

    def power_on(self, instance: Instance) -> None:
        self.power.on(
            instance, on_unexpected_end=self.on_unexpected_end, on_run_limit=self.on_run_limit
        )
        instance.status = Status.RUNNING

    def start(self, instance: Instance) -> None:
        if instance.status is Status.TERMINATED:
            instance.status = Status.STAGING
            self.pause()
            self.power_on(instance)

    def reset(self, instance: Instance) -> None:
        """Power off and on without a shutdown.

        The disk stays, and the status is RUNNING throughout.
        """
        if instance.status is Status.RUNNING:
            self.power.off(instance, grace_s=0)
            self.power_on(instance)

    def stop(self, instance: Instance) -> None:
        if instance.status is Status.RUNNING:
            self.halt(instance, self.timing.shutdown_s)

    def halt(self, instance: Instance, grace_s: float, event: Operation | None = None) -> None:
        """Stop a VM that runs.

        `event`: the system event that is the cause; it is logged when the status changes.
        """
        instance.status = Status.STOPPING
        if event is not None:
            self.system_events(event, instance)
        self.power.off(instance, grace_s)
        self.pause()
        instance.status = Status.TERMINATED

    def end(self, instance: Instance, grace_s: float, event: Operation | None = None) -> None:
        """Stop a VM that runs, and delete it if its `instanceTerminationAction` is DELETE."""
        if instance.status is not Status.RUNNING:
            return
        self.halt(instance, grace_s, event)
        if instance.properties.scheduling.termination_action == "DELETE":
            self.remove(instance)

    def delete(self, instance: Instance) -> None:
        """Shut down and delete."""
        instance.status = Status.STOPPING
        self.power.off(instance, self.timing.shutdown_s)
        self.pause_deletion()
        self.remove(instance)

    def remove(self, instance: Instance) -> None:
        """Power off and delete the VM and its disk, and free its name."""
        self.power.off(instance, grace_s=0)
        instance.deleted = True
        self.registry.forget(instance)
        instance.disk.destroy()
