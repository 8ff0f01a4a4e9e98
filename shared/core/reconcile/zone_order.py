"""In which order a job's zones are tried: those that lately had no room for such machines come last.

A stockout is remembered for a while, whichever job it happened to. The order is made once, when a job is accepted, and
stored with it: what is decided later can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from shared.core.model.plan import Plan, TaskGroup

STOCKOUT_REMEMBERED: Final = timedelta(minutes=30)
"""Capacity comes back within minutes to hours: long enough that a job does not run into what its neighbour just found,
short enough that a zone is not passed over for a day."""


@dataclass(frozen=True, slots=True)
class Stockout:
    """The zone had no room for a machine of this kind (`machine_kind`)."""

    zone: str
    kind: str
    at: datetime


def machine_kind(group: TaskGroup, *, spot: bool) -> str:
    """What capacity is counted in, in words: `Spot n1-standard-8 with 2 x nvidia-tesla-t4`."""
    words = group.tpu.type if group.tpu else group.machine_type
    if group.accelerator:
        words += f" with {group.accelerator.count} x {group.accelerator.type}"
    return f"Spot {words}" if spot else words


def exhausted(plan: Plan, stockouts: Iterable[Stockout], now: datetime) -> tuple[str, ...]:
    """Those of the plan's zones that lately had no room for one of its first machines, in the plan's order."""
    kinds = {machine_kind(group, spot=group.spot and plan.on_demand_after != 0) for group in plan.groups}
    since = now - STOCKOUT_REMEMBERED
    full = {each.zone for each in stockouts if each.kind in kinds and each.at >= since}
    return tuple(zone for zone in plan.zones if zone in full)


def with_last(zones: tuple[str, ...], last: tuple[str, ...]) -> tuple[str, ...]:
    """Both parts in the order they were in."""
    return (*(zone for zone in zones if zone not in last), *last)
