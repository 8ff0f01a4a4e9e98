"""Capacity as it was observed: the latest outcome of a request for each zone and kind of VM, whichever job made it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.plan import Plan, TaskGroup


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request for VMs in a zone ended."""

    zone: str
    kind: str
    """`machine_kind` of the VMs."""
    at: datetime
    is_created: bool = False
    """Whether the VMs were created. False: the zone had no capacity for them."""

    @property
    def key(self) -> tuple[str, str]:
        return self.zone, self.kind


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is expected of a candidate when a pass begins."""

    chance: float
    """Chance of capacity, between 0 and 1; 0.5: nothing is known."""
    failed_at: datetime | None = None
    """Latest stockout, if no request has succeeded since."""


def machine_kind(group: TaskGroup, *, spot: bool) -> str:
    """Return what a group's VMs are, in words: `Spot n1-standard-8 with 2 x nvidia-tesla-t4`."""
    words = group.tpu.type if group.tpu else group.machine_type
    if group.accelerator:
        words += f" with {group.accelerator.count} x {group.accelerator.type}"
    return f"Spot {words}" if spot else words


def decisive_kinds(plan: Plan) -> tuple[str, ...]:
    """Return the kinds of VMs whose capacity decides where the job can run: those with accelerators, else all."""
    groups = [group for group in plan.groups if group.accelerator or group.tpu] or plan.groups
    return tuple(dict.fromkeys(machine_kind(group, spot=group.spot and plan.on_demand_after != 0) for group in groups))
