"""The list prices of a job's candidates, and their order by price.

Candidates whose prices differ by less than `BAND` are equally cheap: capacity decides among them. A reservation is paid
for in any case, so it comes first. A candidate without a known price comes last.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import log
from typing import Final

from trainmaster.core.model.plan import Candidate, Plan
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown

BAND: Final = 1.15
LAST: Final = 1_000
"""Rank of a candidate whose price is unknown."""


def ranked_by_price(plan: Plan, prices: PriceList | Unknown) -> Plan:
    """Return the plan of `anyOf` with its candidates ranked by price; unchanged if there are no prices."""
    if isinstance(prices, Unknown):
        return plan
    hourly = [hourly_cost(plan.at(number), prices) for number in range(len(plan.candidates))]
    cheapest = min((price for price in hourly if not isinstance(price, Unknown)), default=Decimal(1))

    def rank_of(candidate: Candidate, price: Decimal | Unknown) -> int:
        if plan.options[candidate.option].reservation:
            return 0
        return LAST if isinstance(price, Unknown) else 1 + int(log(price / cheapest, BAND))

    ranked = zip(plan.candidates, hourly, strict=True)
    return replace(plan, candidates=tuple(replace(item, rank=rank_of(item, price)) for item, price in ranked))
