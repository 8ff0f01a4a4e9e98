"""The list prices of a job's candidates, and their order by price.

Candidates whose prices differ by less than `BAND` are equally cheap: capacity decides among them. A reservation is paid
for in any case, so it comes first. A candidate without a known price comes last.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Final

from trainmaster.core.model.plan import Candidate, Plan
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown

BAND: Final = 1.15


def with_prices(plan: Plan, prices: PriceList | Unknown) -> Plan:
    """Return the plan with the price of each candidate that has one, and ranks by price if it is `anyOf`."""
    listed = [
        prices if isinstance(prices, Unknown) else hourly_cost(plan.at(n), prices) for n in range(len(plan.candidates))
    ]
    known = [None if isinstance(price, Unknown) else float(price) for price in listed]
    cheapest = min((price for price in known if price), default=1.0)
    bands = [None if price is None else 1 + int(log(max(price / cheapest, 1.0), BAND)) for price in known]
    last = 1 + max((band for band in bands if band), default=0)

    def ranked(candidate: Candidate, price: float | None, band: int | None) -> Candidate:
        by_price = 0 if plan.options[candidate.option].reservation else band or last
        return replace(candidate, price=price, rank=by_price if plan.cheapest_first else candidate.rank)

    return replace(plan, candidates=tuple(map(ranked, plan.candidates, known, bands)))


def needs_prices(plan: Plan) -> bool:
    """Whether alternatives are to be compared that differ in machine or pricing."""
    return plan.cheapest_first and len({option.groups for option in plan.options}) > 1
