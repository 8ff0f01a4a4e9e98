"""Faults of a running VM: it is lost with or without notice, it reboots or hangs, or its agent
crashes.

A slice is lost as a whole; a reboot or an agent crash concerns one of its hosts. The faults of a VM
are planned when it starts, so that each VM has the same probability of a fault per hour.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from trainmaster.core.intake.system_events import log_name
from trainmaster.core.model.vm import VmStatus
from trainmaster.messaging import topics
from trainmaster_local.simulator.world.agent import SimAgent
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.vm import NOTICE_S, SimVm, VmPool

HOUR_S: Final = 3600.0
REBOOT_S: Final = (5, 30)
"""Shortest and longest time of a reboot."""
MAINTENANCE_S: Final = (2, 120)
"""Shortest and longest time between the announcement of maintenance and its begin."""
NOTICE_MIN_S: Final = 5
"""Shortest time between the notice of a preemption and the end; `NOTICE_S` is the longest."""
PREEMPTION_SHARE: Final = 0.5
"""Share of the announced losses that are preemptions; the others are maintenance."""
STOPPED_SHARE: Final = 0.5
"""Share of the lost VMs that are stopped and still exist; the others are deleted."""
AUDIT_LOG_SHARE: Final = 0.5
"""Share of the unannounced losses that Compute Engine's audit log reports before the sweep finds
them.
"""


class VmFaults:
    """Plans and carries out the faults of all VMs."""

    def __init__(self, context: Context, pool: VmPool, bus: SimBus) -> None:
        self._context = context
        self._pool = pool
        self._bus = bus

    def plan(self, vm: SimVm) -> None:
        """Plan what will happen to this VM, if anything."""
        faults = self._context.faults
        self._plan_fault(faults.loss_per_hour, lambda: self._lose(vm))
        self._plan_fault(faults.agent_crash_per_hour, lambda: self._crash_agent(vm))
        self._plan_fault(faults.hang_per_hour, lambda: self._hang(vm))

    def _plan_fault(self, per_hour: float, fault: Callable[[], None]) -> None:
        """Plan the fault for a random time, exponentially distributed with this rate."""
        if per_hour > 0:
            self._context.scheduler.after(self._context.rng.expovariate(per_hour / HOUR_S), fault)

    def _lose(self, vm: SimVm) -> None:
        """Lose the VM: with notice, by a reboot, or at once, stopped or deleted."""
        context = self._context
        faults = context.faults
        is_running = not vm.is_gone and vm.observed.status is VmStatus.RUNNING
        # The rate is 0 once the history's time of faults is over.
        if not is_running or not faults.loss_per_hour or not vm.agents:
            return
        stays = context.chance(STOPPED_SHARE)
        if context.chance(faults.notice):
            self._announce_loss(vm, stays=stays)
        elif context.chance(faults.reboot):
            self._reboot(vm)
        elif stays:
            self._pool.stop(vm, "host error")
            self._write_audit_log(vm, "compute.instances.hostError")
        else:
            self._pool.remove(vm, "preempted")
            self._write_audit_log(vm, "compute.instances.preempted")

    def _announce_loss(self, vm: SimVm, *, stays: bool) -> None:
        """Preempt the VM, which gives notice as it shuts down, or announce maintenance some time
        before it.
        """
        if self._context.chance(PREEMPTION_SHARE):
            for agent in vm.agents:
                agent.receive_notice("preemption")
            within_s = self._context.between(NOTICE_MIN_S, NOTICE_S)
            self._pool.shut_down(vm, within_s, stays=stays)
            return
        delay_s = self._context.between(*MAINTENANCE_S)
        for agent in vm.agents:
            agent.receive_maintenance_window(delay_s)
        self._context.scheduler.after(
            delay_s, lambda: self._pool.shut_down(vm, NOTICE_S, stays=True)
        )

    def _reboot(self, vm: SimVm) -> None:
        """End one host of the VM, and let it boot again after some seconds."""
        agent = self._choose_agent(vm)
        self._context.log("reboot", vm.observed.name)
        agent.power_off()
        self._context.scheduler.after(
            self._context.between(*REBOOT_S), lambda: self._finish_reboot(vm, agent)
        )

    def _finish_reboot(self, vm: SimVm, agent: SimAgent) -> None:
        if not vm.is_live or vm.observed.status is not VmStatus.RUNNING:
            return
        if len(vm.agents) == 1:  # a VM, which may be lost as it boots
            self._pool.start(vm)
        else:
            agent.boot()

    def _crash_agent(self, vm: SimVm) -> None:
        """Let the agent of one host end, and start again."""
        if vm.agents and self._context.faults.agent_crash_per_hour:
            self._choose_agent(vm).crash()

    def _hang(self, vm: SimVm) -> None:
        """Stop all that the VM does.

        If all VMs of a job hung, no heartbeat would show that heartbeats still work.
        """
        peers = [peer for peer in self._pool.present.values() if peer.job_id == vm.job_id]
        has_hung_peer = any(peer.hung_s is not None for peer in peers)
        is_running = not vm.is_gone and vm.observed.status is VmStatus.RUNNING
        # The rate is 0 once the history's time of faults is over.
        if not is_running or has_hung_peer or not self._context.faults.hang_per_hour:
            return
        self._context.log("hangs", vm.observed.name, vm.observed.instance_id)
        vm.hung_s = self._context.now
        for agent in vm.agents:
            agent.power_off()

    def _choose_agent(self, vm: SimVm) -> SimAgent:
        """Return the agent of a random host."""
        return vm.agents[int(self._context.rng.random() * len(vm.agents))]

    def _write_audit_log(self, vm: SimVm, method: str) -> None:
        """Publish the loss as Compute Engine's audit log reports it, in some of the cases."""
        if self._context.chance(AUDIT_LOG_SHARE):
            observed = vm.observed
            entry = {
                "logName": log_name("p"),
                "protoPayload": {
                    "methodName": method,
                    "resourceName": f"projects/p/zones/{observed.zone}/instances/{observed.name}",
                },
                "resource": {
                    "labels": {"instance_id": observed.instance_id, "zone": observed.zone}
                },
                "timestamp": self._context.scheduler.clock().isoformat(),
            }
            self._bus.publish(topics.MAINTENANCE, json.dumps(entry).encode(), attributes={})
