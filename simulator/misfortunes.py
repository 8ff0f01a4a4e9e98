"""What happens to a VM that is up: it is taken away, with notice or without, or reboots, or its agent crashes.

Every VM draws its own fate when it comes up, so that a fault belongs to a machine and not to a moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from shared import topics
from shared.core.fleet import VmStatus
from simulator.bus import SimBus
from simulator.context import Context
from simulator.machines import NOTICE_S, SimFleet, SimVm

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
        if vm.is_gone or vm.seen.status is not VmStatus.RUNNING or not faults.loss_per_hour:
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
        if vm.agent is None:
            return
        if self._context.chance(0.5):
            vm.agent.hear_fault("preemption")
            self._fleet.shut_down(vm, self._context.between(5, NOTICE_S), stays=stays)
        else:
            vm.agent.hear_fault("maintenance")
            delay_s = self._context.between(2, 60)
            self._context.scheduler.after(delay_s, lambda: self._fleet.shut_down(vm, NOTICE_S, stays=True))

    def _reboot(self, vm: SimVm) -> None:
        self._context.say("reboot", vm.seen.name)
        if vm.agent:
            vm.agent.die()
        self._context.scheduler.after(self._context.between(5, 30), lambda: self._come_back(vm))

    def _come_back(self, vm: SimVm) -> None:
        if vm.is_live and vm.seen.status is VmStatus.RUNNING:
            self._fleet.come_up(vm)

    def _crash_agent(self, vm: SimVm) -> None:
        if vm.agent and self._context.faults.agent_crash_per_hour:
            vm.agent.crash()

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
