"""Capacity as it was observed: the latest outcome of a request for each zone and kind of VM,
whichever job made it.

A candidate is one of the places in which a job's VMs can be requested, an index into the zones of
its plan. Its decisive roles are those with accelerators, if there are any, else all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import PriceClass
from trainmaster.core.model.task_group import TaskGroup


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


def machine_kind(group: TaskGroup, price: PriceClass) -> str:
    """Return what a group's VMs are, in words: `Spot n1-standard-8 with 2 x nvidia-tesla-t4`."""
    words = group.tpu.type if group.tpu else group.machine_type
    if group.accelerator:
        words += f" with {group.accelerator.count} x {group.accelerator.type}"
    return f"{price.prefix} {words}" if price.prefix else words


def candidate_words(plan: Plan, candidate: int) -> str:
    """Return what is requested next, and where; only where, if the job has no alternatives."""
    zone = plan.where.zones[candidate]
    if not plan.where.options:
        return zone
    kinds = " and ".join(decisive_kinds(plan.at(candidate)))
    return f"{kinds} in {zone}"


def candidate_keys(plan: Plan) -> list[list[tuple[str, str]]]:
    """Return per candidate the keys of the outcomes that decide about it: zone and kind of each
    decisive role.
    """
    return [
        [(zone, kind) for kind in decisive_kinds(plan.at(number))]
        for number, zone in enumerate(plan.where.zones)
    ]


def requests_with_advice(plan: Plan) -> list[tuple[str, TaskGroup]]:
    """Return zone and role of each request about which Google gives advice: those of decisive
    roles with GPUs, at a price class that has advice.
    """
    requests: list[tuple[str, TaskGroup]] = []
    for number, zone in enumerate(plan.where.zones):
        requests.extend(
            (zone, group)
            for group in _decisive_groups(plan.at(number))
            if group.accelerator and group.purchase.price.has_advice
        )
    return requests


def shares_quota(plan: Plan, one: int, other: int, message: str) -> bool:
    """Whether the quota that candidate `one` has used up, by Google's message, covers the candidate
    `other`, too.

    Quotas of GPUs, TPU generations, and machine families are per region and price class; one counts
    all GPUs.
    """
    if "GPUS_ALL_REGIONS" in message:
        return any(group.accelerator for group in plan.at(other).groups)
    return not _quotas(plan.at(one)).isdisjoint(_quotas(plan.at(other)))


def _quotas(plan: Plan) -> set[tuple[str, str, str]]:
    """Return what the decisive roles of a placed plan count against: region, price class, and GPU
    or family of machines.
    """
    quotas = set()
    for group in _decisive_groups(plan):
        machine = group.tpu.type if group.tpu else group.machine_type
        counted = group.accelerator.type if group.accelerator else machine.partition("-")[0]
        quotas.add((plan.where.region, group.purchase.price.quota_prefix, counted))
    return quotas


def _decisive_groups(plan: Plan) -> Sequence[TaskGroup]:
    return [group for group in plan.groups if group.accelerator or group.tpu] or plan.groups


def decisive_kinds(plan: Plan) -> tuple[str, ...]:
    """Return the kinds of VMs whose capacity decides where the job can run: those with
    accelerators, else all.
    """
    kinds = (machine_kind(group, group.purchase.price) for group in _decisive_groups(plan))
    return tuple(dict.fromkeys(kinds))
