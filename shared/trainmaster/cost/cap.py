"""`trainmaster.maxCost`: the rates of a job that has one, and the most that it has cost.

The rates are stored with the job, so that a change of the price list changes no decision. The cost
is an upper bound: a VM is counted from its request, for `BOOT_MAX` at most, or for
`STARTUP_TIMEOUT_S` if its agent has not reported when it started (each round that begins renews
that time), and until `RELEASE_MAX_S` after its end. Refused requests are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby, takewhile
from math import ceil, inf
from typing import Final

from trainmaster.core.events import AllReady, VmsNotCreated
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Cap, Plan, Rate, TaskGroup
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

_SEARCHES: Final = frozenset((Phase.STARTING, Phase.GETTING_MACHINES, Phase.REPLACING))


def with_rates(
    plan: Plan, prices: PriceList | Unknown, now: datetime, trials: int = 1
) -> Plan | Unknown:
    """Return the plan with the rates of its cap, if it has one; Unknown: the cost of this job
    cannot be limited.

    `trials`: how many jobs share the cap.
    """
    if plan.cap is None or isinstance(prices, Unknown):
        return prices if plan.cap and isinstance(prices, Unknown) else plan
    if prices.currency != plan.cap.currency:
        return Unknown(f"the list prices are in {prices.currency}")
    if (now - prices.fetched_at).days > PRICES_AGE_MAX_DAYS:
        return Unknown(f"the price list is older than {PRICES_AGE_MAX_DAYS} days")
    if isinstance(rates := _rates(plan, prices), Unknown):
        return rates
    cap = replace(plan.cap, per_hour=rates[1], least_per_hour=rates[2], rates=rates[0])
    if replace(cap, amount=cap.amount / trials).is_reached(0.0, COST_SAVE_S):
        end_s = COST_RESERVE_S + COST_SAVE_S
        end = f"{cap.per_hour * end_s / 3600:.2f} {cap.currency}"
        jobs = f"each of {trials} trials has machines that" if trials > 1 else "its machines"
        return Unknown(f"{jobs} cost {end} in the {end_s} s of their last save and their end")
    return replace(plan, cap=cap)


def with_hourly_cost(plan: Plan, prices: PriceList | Unknown) -> Plan | Unknown:
    """Return the plan with the most that its machines cost per hour, which the limit `usd_per_hour`
    counts.
    """
    if isinstance(prices, Unknown) or prices.currency != "USD":
        return (
            prices
            if isinstance(prices, Unknown)
            else Unknown(f"the list prices are in {prices.currency}")
        )
    rates = _rates(plan, prices)
    return (
        rates
        if isinstance(rates, Unknown)
        else replace(plan, usd_per_hour=ceil(rates[1] * 100) / 100)
    )


def _rates(plan: Plan, prices: PriceList) -> tuple[tuple[Rate, ...], float, float] | Unknown:
    """Return the rates, and the most and the least that all machines cost per hour."""
    rates: list[Rate] = []
    per_hour, least_per_hour = 0.0, inf
    for candidate in range(max(len(plan.candidates), 1)):
        placed, whole, least = plan.at(candidate), 0.0, 0.0
        for group in placed.groups:
            rate = _rate(placed, group, candidate, prices)
            if isinstance(rate, Unknown):
                return rate
            rates.append(rate)
            possible = [price for price in (rate.on_demand, rate.spot) if price]
            whole += max(possible, default=0.0) * group.count
            least += min(possible, default=0.0) * group.count
        per_hour, least_per_hour = max(per_hour, whole), min(least_per_hour, least)
    return tuple(rates), per_hour, least_per_hour


def _rate(placed: Plan, group: TaskGroup, candidate: int, prices: PriceList) -> Rate | Unknown:
    can_be_spot = group.spot and placed.on_demand_after != 0
    can_be_on_demand = not group.spot or placed.on_demand_after is not None
    known: list[float] = []
    for is_possible, is_spot in ((can_be_on_demand, False), (can_be_spot, True)):
        price = machine_price(placed, group, prices, is_spot=is_spot) if is_possible else None
        if isinstance(price, Unknown):
            return price
        known.append(float(price or 0) * group.hosts)
    return Rate(candidate, group.task_type, *known)


def spent_at_most(cap: Cap, entries: Sequence[LedgerEntry], now: datetime) -> float:
    """Return the most that the job has cost, in the currency of the cap.

    `entries`: its whole ledger.
    """
    if (history := read_history(entries)) is None:
        return 0.0
    rates = {(rate.candidate, rate.task_type): rate for rate in cap.rates}
    not_created = [
        (entry.at, entry.event) for entry in entries if isinstance(entry.event, VmsNotCreated)
    ]
    refused = dict(
        sorted(not_created, key=lambda pair: pair[1].others_created)
    )  # of two at one time, the dearer one
    begun = [
        entry.at for entry in entries if isinstance(entry.event, AllReady) and entry.event.round
    ]
    spent = 0.0

    def rounds_in(span: Span) -> int:
        return sum(span.start <= at <= (span.end or now) for at in begun)

    for _, of_vm in groupby(sorted(replica_spans(history), key=_vm_of), key=_vm_of):
        spans = [span for span in of_vm if span.phase in PAID | _SEARCHES]
        searches = tuple(takewhile(lambda span: span.phase not in PAID, spans))
        paid = spans[
            len(searches) :
        ]  # since its first report; a rerun of the job waits for another one
        free_until = (
            None if paid or not spans else _refused_until(searches, history.state.job, refused)
        )
        if not spans or (free_until and free_until >= (searches[-1].end or now)):
            continue
        paid_s = sum(span.seconds(now) for span in paid)
        search_s = sum(
            min(span.seconds(now), STARTUP_TIMEOUT_S * (1 + rounds_in(span))) for span in searches
        )
        search_s = min(search_s, (now - free_until).total_seconds()) if free_until else search_s
        if paid and all(
            span.phase is not Phase.STARTING for span in searches
        ):  # its set-up is known
            search_s = min(search_s, BOOT_MAX.total_seconds())
        task_type = spans[-1].replica_id.task_type
        rate = (
            rates.get((spans[-1].candidate, task_type)) or rates[0, task_type]
        )  # without alternatives: of all zones
        spent += (
            (rate.spot if spans[-1].is_spot else rate.on_demand)
            * (paid_s + search_s + RELEASE_MAX_S)
            / 3600
        )
    return spent


def _refused_until(
    searches: Sequence[Span], job: Job, refused: Mapping[datetime, VmsNotCreated]
) -> datetime | None:
    """Return until when the requests of this search created no VM of the replica; None: there may
    be one since then.
    """
    kind, end = f"({searches[-1].replica_id.task_type})", searches[-1].end
    own = [
        at for at, event in refused.items() if not event.others_created or kind in event.requested
    ]
    if end is not None:
        return end if end in own else None
    last = max((at for at in own if at >= searches[0].start), default=None)
    return last and max(last, job.placement.next_at or last)


def _vm_of(span: Span) -> tuple[str, int]:
    return str(span.replica_id), span.vm_generation
