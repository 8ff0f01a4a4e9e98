"""`trainmaster.maxCost`: the rates of a job that has one, and the most that it has cost.

The rates are stored with the job, so that a change of the price list changes no decision. The cost
is an upper bound. A VM is counted from its request until `RELEASE_MAX_S` after its end. Of the time
before its agent has reported, at most `BOOT_MAX` is counted; if the agent did not report when it
started, at most `STARTUP_TIMEOUT_S`, once more for each round (common start of the replicas) that
began meanwhile. Refused requests are free.

A rate is the price of one replica of a role per hour, by candidate (one of the places in which the
job's VMs may be requested) and by how the VM is bought. `Unknown` is a price that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby, takewhile
from math import ceil
from typing import Final, NamedTuple

from trainmaster.core.events import AllReady, VmsNotCreated
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.cap import Cap, Rate
from trainmaster.core.model.job import Job
from trainmaster.core.model.money import ZERO, rounded_up
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.reporting.history import read_history
from trainmaster.core.reporting.phases import PAID, Phase, Span, replica_spans
from trainmaster.core.timeouts import (
    BOOT_MAX,
    COST_RESERVE_S,
    COST_SAVE_S,
    RELEASE_MAX_S,
    STARTUP_TIMEOUT_S,
)
from trainmaster.cost.machine_price import machine_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown

CAP_ADVICE: Final = (
    "maxRunningTime, which needs no prices; `trainmaster prices update` makes a new list"
)
PRICES_AGE_MAX_DAYS: Final = 30
"""Age above which a price list is too old to bound a cost."""

HOUR_S: Final = 3600
CENTS: Final = 100
"""Cents in a dollar."""

_SEARCHES: Final = frozenset((Phase.STARTING, Phase.GETTING_MACHINES, Phase.REPLACING))
"""Phases in which a replica waits for a VM, or for the first report of its VM's agent."""


def with_rates(
    plan: Plan, prices: PriceList | Unknown, now: datetime, trials: int = 1
) -> Plan | Unknown:
    """Return the plan with the rates of its cap, if it has one.

    Unknown: the cost of this job cannot be limited. `trials`: how many jobs share the cap.
    """
    if plan.limits.cap is None:
        return plan
    usable = _usable(prices, plan.limits.cap, now)
    priced = usable if isinstance(usable, Unknown) else _rates(plan, usable)
    if isinstance(priced, Unknown):
        return priced
    cap = replace(
        plan.limits.cap,
        per_hour=priced.most_per_hour,
        least_per_hour=priced.least_per_hour,
        rates=priced.rates,
    )
    if replace(cap, limit=cap.limit.share(trials)).is_reached(ZERO, COST_SAVE_S):
        end_s = COST_RESERVE_S + COST_SAVE_S
        end = f"{cap.per_hour * end_s / HOUR_S:.2f} {cap.limit.currency}"
        jobs = f"each of {trials} trials has machines that" if trials > 1 else "its machines"
        return Unknown(f"{jobs} cost {end} in the {end_s} s of their last save and their end")
    return replace(plan, limits=replace(plan.limits, cap=cap))


def _usable(prices: PriceList | Unknown, cap: Cap, now: datetime) -> PriceList | Unknown:
    """Return the prices; Unknown: they cannot limit the cost of a job with this cap."""
    if isinstance(prices, Unknown):
        return prices
    if prices.currency != cap.limit.currency:
        return Unknown(f"the list prices are in {prices.currency}")
    if (now - prices.fetched_at).days > PRICES_AGE_MAX_DAYS:
        return Unknown(f"the price list is older than {PRICES_AGE_MAX_DAYS} days")
    return prices


def with_hourly_cost(plan: Plan, prices: PriceList | Unknown) -> Plan | Unknown:
    """Return the plan with the most that its machines cost per hour, in whole cents.

    The limit `usd_per_hour` counts it.
    """
    if isinstance(prices, Unknown):
        return prices
    if prices.currency != "USD":
        return Unknown(f"the list prices are in {prices.currency}")
    priced = _rates(plan, prices)
    if isinstance(priced, Unknown):
        return priced
    limits = replace(plan.limits, usd_per_hour=ceil(priced.most_per_hour * CENTS) / CENTS)
    return replace(plan, limits=limits)


class _Rates(NamedTuple):
    """Prices of a job's machines per hour, in the currency of the price list."""

    rates: tuple[Rate, ...]
    most_per_hour: Decimal
    """All machines of the dearest candidate."""
    least_per_hour: Decimal
    """All machines of the cheapest candidate."""


def _rates(plan: Plan, prices: PriceList) -> _Rates | Unknown:
    """Return the rates of all candidates; a job without alternatives has one, with number 0."""
    rates: list[Rate] = []
    most_per_hour = ZERO
    least_per_hour: Decimal | None = None
    for candidate in range(max(len(plan.where.candidates), 1)):
        placed = plan.at(candidate)
        most_here = ZERO
        least_here = ZERO
        for group in placed.groups:
            rates_of_role = _rates_of_role(placed, group, candidate, prices)
            if isinstance(rates_of_role, Unknown):
                return rates_of_role
            rates += rates_of_role
            hourly = [rate.per_hour for rate in rates_of_role]
            most_here += max(hourly) * group.count
            least_here += min(hourly) * group.count
        most_per_hour = max(most_per_hour, most_here)
        least_per_hour = min(least_per_hour or least_here, least_here)
    return _Rates(tuple(rates), most_per_hour, least_per_hour or ZERO)


def _rates_of_role(
    placed: Plan, group: TaskGroup, candidate: int, prices: PriceList
) -> list[Rate] | Unknown:
    """Return the rate of each way in which the role's VMs may be bought."""
    rates: list[Rate] = []
    for price in group.purchase.prices:
        hourly = machine_price(placed, group, prices, at=price)
        if isinstance(hourly, Unknown):
            return hourly
        per_hour = rounded_up(hourly * group.hosts)
        rates.append(Rate(candidate, group.task_type, price.kind, per_hour))
    return rates


def spent_at_most(cap: Cap, entries: Sequence[LedgerEntry], now: datetime) -> Decimal:
    """Return the most that the job has cost, in the currency of the cap.

    `entries`: its whole ledger.
    """
    history = read_history(entries)
    if history is None:
        return ZERO
    rates = {(rate.candidate, rate.task_type, rate.bought): rate.per_hour for rate in cap.rates}
    refused = _refusals(entries)
    rounds_begun = [
        entry.at for entry in entries if isinstance(entry.event, AllReady) and entry.event.round
    ]
    spent = ZERO
    for _, of_vm in groupby(sorted(replica_spans(history), key=_vm_of), key=_vm_of):
        spans = [span for span in of_vm if span.phase in PAID | _SEARCHES]
        if not spans:
            continue
        charged_s = _charged_s(spans, history.state.job, refused, rounds_begun, now)
        if charged_s is None:
            continue
        last = spans[-1]
        # A job without alternatives has the same rates in all zones.
        candidate = last.candidate if history.state.job.plan.where.options else 0
        per_hour = rates[candidate, last.replica_id.task_type, last.price.kind]
        spent += per_hour * Decimal(str(charged_s)) / HOUR_S
    return rounded_up(spent)


def _charged_s(
    spans: Sequence[Span],
    job: Job,
    refused: Mapping[datetime, VmsNotCreated],
    rounds_begun: Sequence[datetime],
    now: datetime,
) -> float | None:
    """Return the seconds for which a VM may be charged; None: it was never created.

    `spans`: its phases, of which the first ones may be the search for it.
    """
    searches = tuple(takewhile(lambda span: span.phase not in PAID, spans))
    # Since the VM's first report. A rerun of the job waits for another report of the same VM.
    since_report = spans[len(searches) :]
    search_s = 0.0
    for span in searches:
        rounds = sum(span.start <= at <= (span.end or now) for at in rounds_begun)
        search_s += min(span.seconds(now), STARTUP_TIMEOUT_S * (1 + rounds))
    if not since_report:
        free_until = _refused_until(searches, job, refused)
        if free_until is not None:
            if free_until >= (searches[-1].end or now):
                return None
            search_s = min(search_s, (now - free_until).total_seconds())
    elif all(span.phase is not Phase.STARTING for span in searches):
        # The agent reported when it started, so that its set-up is a phase of its own.
        search_s = min(search_s, BOOT_MAX.total_seconds())
    paid_s = sum(span.seconds(now) for span in since_report)
    return paid_s + search_s + RELEASE_MAX_S


def _refusals(entries: Sequence[LedgerEntry]) -> dict[datetime, VmsNotCreated]:
    """Return the refused requests by their time.

    If two requests were refused at the same time, keep the one that created its other VMs
    (`others_created`): it was refused for fewer replicas, and less is free.
    """
    refused: dict[datetime, VmsNotCreated] = {}
    for entry in entries:
        event = entry.event
        if not isinstance(event, VmsNotCreated):
            continue
        known = refused.get(entry.at)
        if known is None or event.others_created or not known.others_created:
            refused[entry.at] = event
    return refused


def _refused_until(
    searches: Sequence[Span], job: Job, refused: Mapping[datetime, VmsNotCreated]
) -> datetime | None:
    """Return until when the requests of this search created no VM of the replica.

    None: one of them may have created it.
    """
    last_search = searches[-1]
    role = f"({last_search.replica_id.task_type})"
    refused_at = [
        at for at, event in refused.items() if not event.others_created or role in event.requested
    ]
    if last_search.end is not None:
        return last_search.end if last_search.end in refused_at else None
    refused_in_search = [at for at in refused_at if at >= searches[0].start]
    if not refused_in_search:
        return None
    latest = max(refused_in_search)
    return max(latest, job.placement.next_at or latest)  # no request before `next_at`


def _vm_of(span: Span) -> tuple[str, int]:
    """Return the VM of a span: its replica, and which of the replica's VMs it is."""
    return str(span.replica_id), span.vm_generation
