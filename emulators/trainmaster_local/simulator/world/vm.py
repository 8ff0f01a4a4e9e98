"""Simulated VMs and their power states.

CREATING ──► RUNNING ──► agents boot …… STOPPING (the guest is notified) ──► removed
                └── preemption or host error: STOPPED or removed, with or without notice;
                    or a reboot
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.world.context import Context

if TYPE_CHECKING:
    from trainmaster_local.simulator.world.agent import SimAgent

NOTICE_S: Final = 30.0
"""Source: a preempted VM has 30 s between the notice and the end."""
BOOT_LOSS_S: Final = (0.1, 4.0)
"""Shortest and longest time from its start to the loss of a VM that is lost as it boots."""
REMOVED_SHARE: Final = 0.5
"""Share of the VMs lost as they boot that are removed; the others are stopped."""


@dataclass(eq=False, slots=True)
class SimVm:
    """One VM, or one TPU slice, which has an agent on each of its hosts."""

    observed: Vm
    """The VM as a list call returns it."""
    job_id: str
    """The job that its agents work for."""
    metadata: Mapping[str, str]
    """Values that its agents read, by key."""
    created_s: float
    """Virtual time, as of all fields in seconds."""
    expires_s: float
    """Virtual time at which Compute Engine deletes the VM in any case (its maximum run duration).
    """
    hosts: int = 1
    """Hosts of a slice; 1 for a VM."""
    agents: tuple[SimAgent, ...] = ()
    hung_s: float | None = None
    """Virtual time at which it hung; None: it does not hang."""
    is_gone: bool = False
    """Whether it no longer exists."""
    gone_s: float | None = None
    """When it was deleted; None: it exists."""
    set_id: str = ""
    """The job that created it, if another one may take it; empty: the job that its agents work for.
    """

    @property
    def label(self) -> str:
        """The job id in its label, by which listings find it."""
        return self.set_id or self.job_id

    @property
    def is_live(self) -> bool:
        """Whether it exists and has not been stopped."""
        return not self.is_gone and self.observed.status is not VmStatus.STOPPED


@dataclass(slots=True)
class VmPool:
    """All VMs of a history, and what changes their power state."""

    context: Context
    make_agents: Callable[[SimVm], tuple[SimAgent, ...]]
    """Called when a VM first runs: return its agents, one for each host."""
    present: dict[tuple[str, str], SimVm] = field(default_factory=dict)
    """VMs that exist, by name and zone."""
    past: list[SimVm] = field(default_factory=list)
    """VMs that existed."""

    def add(self, vm: SimVm) -> None:
        """Add a VM that is being created, and plan its deletion at `expires_s`."""
        self.present[vm.observed.name, vm.observed.zone] = vm
        self.context.scheduler.after(
            vm.expires_s - self.context.now, lambda: self.remove(vm, "maximum run duration")
        )

    def start(self, vm: SimVm) -> None:
        """Creation or a reboot has succeeded: boot the agents, or lose the VM before they report
        anything.
        """
        context = self.context
        address = f"10.0.0.{vm.observed.instance_id}" if vm.observed.is_tpu else ""
        vm.observed = replace(
            vm.observed,
            status=VmStatus.RUNNING,
            started_at=context.scheduler.clock(),
            address=address,
        )
        context.log(
            "up",
            vm.observed.name,
            vm.observed.instance_id,
            f"generation {vm.observed.vm_generation}",
        )
        if context.chance(context.faults.lost_at_boot):
            context.scheduler.after(context.between(*BOOT_LOSS_S), lambda: self._lose_at_boot(vm))
        vm.agents = vm.agents or self.make_agents(vm)
        for agent in vm.agents:
            agent.boot()

    def hand_over(self, vm: SimVm) -> None:
        """The agents have left the VM to those of the job that its metadata names now.

        Raises ViolationError if a program of the last job still runs.
        """
        if any(agent.program for agent in vm.agents):
            raise ViolationError(f"W: a program of the last job runs on {vm.observed.name}")
        self.context.log("taken", vm.observed.name, vm.job_id)
        vm.agents = self.make_agents(vm)
        for agent in vm.agents:
            agent.boot()

    def _lose_at_boot(self, vm: SimVm) -> None:
        """Lose a VM that has just started, whether or not its agents have reported it."""
        if vm.is_gone or vm.observed.status is not VmStatus.RUNNING:
            return
        if self.context.chance(REMOVED_SHARE):
            self.remove(vm, "preempted")
        else:
            self.stop(vm, "preempted")

    def shut_down(self, vm: SimVm, within_s: float, *, stays: bool) -> None:
        """Notify the guest, and end the VM after `within_s` seconds: it is removed or, if it
        `stays`, stopped.
        """
        if vm.is_gone or vm.observed.status is VmStatus.STOPPING:
            return
        was_up = vm.observed.status is VmStatus.RUNNING
        vm.observed = replace(vm.observed, status=VmStatus.STOPPING)
        self.context.log("stopping", vm.observed.name, vm.observed.instance_id)
        if was_up:
            for agent in vm.agents:
                agent.shut_down()
        if stays:
            self.context.scheduler.after(within_s, lambda: self.stop(vm, "shut down"))
        else:
            self.context.scheduler.after(within_s, lambda: self.remove(vm, "deleted"))

    def stop(self, vm: SimVm, reason: str) -> None:
        """Stop the VM at once. It still exists until it is deleted."""
        if not vm.is_gone:
            self.context.log("stopped", vm.observed.name, vm.observed.instance_id, reason)
            vm.observed = replace(vm.observed, status=VmStatus.STOPPED)
            _power_off(vm)

    def remove(self, vm: SimVm, reason: str) -> None:
        """Stop the VM at once, and delete it."""
        if vm.is_gone:
            return
        self.context.log("gone", vm.observed.name, vm.observed.instance_id, reason)
        vm.is_gone = True
        vm.gone_s = self.context.now
        del self.present[vm.observed.name, vm.observed.zone]
        self.past.append(vm)
        _power_off(vm)


def _power_off(vm: SimVm) -> None:
    """End the agents and programs of the VM, without notice."""
    for agent in vm.agents:
        agent.power_off()
