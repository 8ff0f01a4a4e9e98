"""What happens to a VM that is up: it is taken away, with notice or without, or reboots, or its agent crashes. A slice
is taken away as a whole; one of its hosts reboots, and is back.

Every VM draws its own fate when it comes up, so that a fault belongs to a machine and not to a moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from shared.core.reconcile.plan import VmStatus
from shared.messaging import topics
from simulator.world.agent import SimAgent
from simulator.world.bus import SimBus
from simulator.world.context import Context
from simulator.world.fleet import NOTICE_S, SimFleet, SimVm

HOUR_S: Final = 3600.0
AUDIT_LOG: Final = 0.5
"""The share of unannounced losses of which Compute's audit log tells before the sweep finds them."""


class Misfortunes:
    def __init__(self, context: Context, fleet: SimFleet, bus: SimBus) -> None:
        self._context, self._fleet, self._bus = context, fleet, bus

    def await_vm(self, vm: SimVm) -> None:
        """Plans what will happen to this VM, if anything."""
        faults = self._context.faults
        self._plan(faults.loss_per_hour, lambda: self._lose(vm))
        self._plan(faults.agent_crash_per_hour, lambda: self._crash_agent(vm))

    def _plan(self, per_hour: float, what: Callable[[], None]) -> None:
        if per_hour > 0:
            self._context.scheduler.after(self._context.rng.expovariate(per_hour / HOUR_S), what)

    def _lose(self, vm: SimVm) -> None:
        context, faults = self._context, self._context.faults
        if vm.is_gone or vm.seen.status is not VmStatus.RUNNING or not faults.loss_per_hour or not vm.agents:
            return
        stays = context.chance(0.5)
        if context.chance(faults.notice):
            self._announce(vm, stays=stays)
        elif context.chance(faults.reboot):
            self._reboot(vm)
        elif stays:
            self._fleet.stop(vm, "host error")
            self._tell_audit_log(vm, "compute.instances.hostError")
        else:
            self._fleet.vanish(vm, "preempted")
            self._tell_audit_log(vm, "compute.instances.preempted")

    def _announce(self, vm: SimVm, *, stays: bool) -> None:
        """Spot VMs are shut down as they are told; maintenance tells some time before."""
        if self._context.chance(0.5):
            for agent in vm.agents:
                agent.hear_fault("preemption")
            self._fleet.shut_down(vm, self._context.between(5, NOTICE_S), stays=stays)
            return
        delay_s = self._context.between(2, 120)
        for agent in vm.agents:
            agent.hear_of_window(delay_s)
        self._context.scheduler.after(delay_s, lambda: self._fleet.shut_down(vm, NOTICE_S, stays=True))

    def _reboot(self, vm: SimVm) -> None:
        agent = self._one_of(vm)
        self._context.say("reboot", vm.seen.name)
        agent.die()
        self._context.scheduler.after(self._context.between(5, 30), lambda: self._come_back(vm, agent))

    def _come_back(self, vm: SimVm, agent: SimAgent) -> None:
        if not vm.is_live or vm.seen.status is not VmStatus.RUNNING:
            return
        if len(vm.agents) == 1:
            self._fleet.come_up(vm)
        else:
            agent.boot()

    def _crash_agent(self, vm: SimVm) -> None:
        if vm.agents and self._context.faults.agent_crash_per_hour:
            self._one_of(vm).crash()

    def _one_of(self, vm: SimVm) -> SimAgent:
        return vm.agents[int(self._context.rng.random() * len(vm.agents))]

    def _tell_audit_log(self, vm: SimVm, method: str) -> None:
        if self._context.chance(AUDIT_LOG):
            seen = vm.seen
            entry = {
                "protoPayload": {
                    "methodName": method,
                    "resourceName": f"projects/p/zones/{seen.zone}/instances/{seen.name}",
                },
                "resource": {"labels": {"instance_id": seen.instance_id, "zone": seen.zone}},
                "timestamp": self._context.scheduler.clock().isoformat(),
            }
            self._bus.publish(topics.MAINTENANCE, json.dumps(entry).encode(), {})
