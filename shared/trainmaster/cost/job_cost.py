"""The cost of a job's machine time at list prices, by attempt and phase.

The phases in which there is a VM (`PAID`) are charged, each at the price of the VM that the replica
had: a replica may change from Spot to on-demand VMs. Discounts, networks, storage and images are
not included.

A job whose file lists alternatives (`trainmaster.placement`) has a candidate for each zone of each
alternative; `ranked_by_price` sorts them for a job that asks for the cheapest (`anyOf`).

A price or cost that is not known is the value `Unknown`, which says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from math import log
from typing import Final

from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.purchase import PriceClass, Pricing, Reserved
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.where import Candidate
from trainmaster.core.reporting.lost_work import WrittenObjects, losses, lost_work
from trainmaster.core.reporting.phases import PAID, Phase, Span
from trainmaster.cost.machine_price import machine_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.cost.sku_resources import CONTINENTS, GIB, Resource

SECONDS_PER_HOUR: Final = Decimal(3600)
RUN_HOURS: Final = 24
"""Hours over which the price of the data that a start reads is spread when candidates are compared.
"""
BAND: Final = 1.15
"""Ratio of two prices that still count as equal."""
LAST: Final = 1_000
"""Rank of a candidate whose price is unknown: after all others."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost of a job's machine time. Amounts are in the price list's currency."""

    currency: str
    priced_at: datetime
    """Time at which the price list was fetched."""
    by_attempt: Mapping[int, Mapping[Phase, Decimal]]
    """Attempt → phase → amount. Phases without a VM are left out."""
    lost_at_least: Decimal
    """Part of the total for work that was lost, because no checkpoint had it: lower bound."""
    lost_at_most: Decimal
    """Upper bound of the same."""

    @property
    def total(self) -> Decimal:
        """The sum over all attempts and phases."""
        total = Decimal(0)
        for phases in self.by_attempt.values():
            for amount in phases.values():
                total += amount
        return total


def job_cost(
    job: Job,
    spans: Sequence[Span],
    prices: PriceList,
    now: datetime,
    written: WrittenObjects | None = None,
) -> JobCost | Unknown:
    """Return the cost until the job's end, or until now.

    `spans`: what each replica did, and when. `written`: when objects below the job's output folder
    were written, which bounds the lost work. Unknown: the price of a machine that the job had is
    unknown.
    """
    hourly: dict[tuple[TaskType, PriceClass, int], Decimal | Unknown] = {}
    """Prices of a role's machine that were computed already."""
    by_attempt: dict[int, dict[Phase, Decimal]] = {}
    price_per_s: dict[tuple[ReplicaId, int, int], Decimal] = {}
    """Replica, attempt, incarnation → price of its machine."""
    for span in spans:
        if span.phase not in PAID:
            continue
        task_type = span.replica_id.task_type
        key = (task_type, span.price, span.candidate)
        if key not in hourly:
            placed = job.plan.at(span.candidate)
            group = placed.group(task_type)
            hourly[key] = machine_price(placed, group, prices, at=span.price)
        price = hourly[key]
        if isinstance(price, Unknown):
            return price
        per_s = price / SECONDS_PER_HOUR
        price_per_s[span.replica_id, span.attempt, span.incarnation] = per_s
        machine_s = Decimal(str(span.seconds(now))) * span.machines(job.plan)
        by_phase = by_attempt.setdefault(span.attempt, defaultdict(Decimal))
        by_phase[span.phase] += machine_s * per_s
    at_least = Decimal(0)
    at_most = Decimal(0)
    for loss in losses(job.plan, spans):
        lost = lost_work(loss, written, now)
        per_s = price_per_s[loss.replica_id, loss.attempt, loss.incarnation]
        at_least += Decimal(str(lost.at_least_s)) * per_s
        at_most += Decimal(str(lost.at_most_s)) * per_s
    return JobCost(prices.currency, prices.fetched_at, by_attempt, at_least, at_most)


def hourly_cost(plan: Plan, prices: PriceList) -> Decimal | Unknown:
    """Return the price per hour of all machines that the job requests first."""
    total = Decimal(0)
    for group in plan.groups:
        price = machine_price(plan, group, prices, at=group.purchase.price)
        if isinstance(price, Unknown):
            return price
        total += price * group.count * group.hosts
    return total


def transfer_price(
    gib: int | None, place: BucketPlace | None, region: str, prices: PriceList
) -> Decimal | Unknown:
    """Return the price of reading a bucket's data once in this region: 0 where the bucket is.

    `gib`: how much is read; `place`: where the bucket is; None: not known. Only the prices of
    transfers within a continent are known: each has one SKU, whatever the two regions.
    """
    if place is None:
        return Unknown("the location of its bucket is not known")
    if place.regions and place.serves(region):
        return Decimal(0)
    continents = {CONTINENTS.get(end.partition("-")[0], "") for end in (*place.regions, region)}
    is_within_continent = len(continents) == 1 and "" not in continents
    if not place.regions or not is_within_continent:
        return Unknown(f"Trainmaster knows no price of transfers from {place.location} to {region}")
    if gib is None:
        return Unknown("trainmaster.placement.data names no size (gib)")
    price = prices.price(
        Resource(f"transfer within {continents.pop()}", GIB), "global", Pricing.ON_DEMAND
    )
    return price if isinstance(price, Unknown) else price * gib


def ranked_by_price(
    plan: Plan, prices: PriceList | Unknown, starts: Mapping[str, Decimal | Unknown]
) -> Plan:
    """Return a plan with its candidates ranked by price; VMs are requested in the order of ranks.

    Without prices it stays as it is.

    Candidates whose prices differ by less than `BAND` are equally cheap: capacity decides among
    them. A reservation is paid for in any case, so it comes first. A candidate without a known
    price comes last. `starts`: region → price of the transfer of data at each start, which counts
    as if each start ran for a day, and not at all if it is unknown.
    """
    if isinstance(prices, Unknown):
        return plan
    hourly = [hourly_cost(plan.at(number), prices) for number in range(len(plan.where.candidates))]
    for number, zone in enumerate(plan.where.zones):
        price = hourly[number]
        start = starts.get(zone.rpartition("-")[0])
        if isinstance(price, Decimal) and isinstance(start, Decimal):
            hourly[number] = price + start / RUN_HOURS
    known = [price for price in hourly if not isinstance(price, Unknown)]
    cheapest = min(known, default=Decimal(1))  # without a known price, no price is compared with it

    def rank_of(candidate: Candidate, price: Decimal | Unknown) -> int:
        """Return 0 for a reservation; else 1 plus the number of bands above the cheapest price."""
        option = plan.where.options[candidate.option]
        if any(isinstance(group.purchase.price, Reserved) for group in option.groups):
            return 0
        if isinstance(price, Unknown):
            return LAST
        return 1 + int(log(price / cheapest, BAND))

    ranked = tuple(
        replace(candidate, rank=rank_of(candidate, price))
        for candidate, price in zip(plan.where.candidates, hourly, strict=True)
    )
    return replace(plan, where=replace(plan.where, candidates=ranked))
