"""The order in which a job's zones are tried: zones with a recent stockout of the same kind of VM come last.

A stockout counts for `STOCKOUT_MEMORY`, whichever job it happened to. The order is decided once, when a job is
accepted, and stored with the job, so that later decisions can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.plan import Plan, TaskGroup
from trainmaster.core.timeouts import STOCKOUT_MEMORY


@dataclass(frozen=True, slots=True)
class Stockout:
    """A zone had no capacity for a kind of VM."""

    zone: str
    kind: str
    """`machine_kind` of the VMs."""
    at: datetime


def machine_kind(group: TaskGroup, *, spot: bool) -> str:
    """Return what a group's VMs are, in words: `Spot n1-standard-8 with 2 x nvidia-tesla-t4`."""
    words = group.tpu.type if group.tpu else group.machine_type
    if group.accelerator:
        words += f" with {group.accelerator.count} x {group.accelerator.type}"
    return f"Spot {words}" if spot else words


def zones_with_stockout(plan: Plan, stockouts: Iterable[Stockout], now: datetime) -> tuple[str, ...]:
    """Return the plan's zones with a recent stockout of VMs that the job requests first, in the plan's order."""
    kinds = {machine_kind(group, spot=group.spot and plan.on_demand_after != 0) for group in plan.groups}
    since = now - STOCKOUT_MEMORY
    zones = {stockout.zone for stockout in stockouts if stockout.kind in kinds and stockout.at >= since}
    return tuple(zone for zone in plan.zones if zone in zones)


def move_to_end(zones: tuple[str, ...], last: tuple[str, ...]) -> tuple[str, ...]:
    """Return `zones` with those in `last` at the end. The order is otherwise unchanged."""
    return (*(zone for zone in zones if zone not in last), *last)
