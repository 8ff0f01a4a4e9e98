"""The check of a job's price, for `trainmaster doctor JOB.yaml` and `submit --check`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok
from trainmaster.core.model.plan import Plan
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import TOO_OLD_DAYS, PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.presentation.cost_view import money_words

UPDATE: Final = "run `trainmaster prices update`"


def check_price(plan: Plan, machines: str, prices: PriceList | Unknown) -> Iterator[Finding]:
    """Yield the price of the job's machines per hour and at most. `machines`: the machines in words."""
    what = f"price of {machines}"
    if isinstance(prices, Unknown):
        yield not_checked(what, prices.reason)
        return
    hourly = hourly_cost(plan, prices)
    if isinstance(hourly, Unknown):
        yield not_checked(what, hourly.reason)
        return
    most = hourly * Decimal(plan.max_running_s) / 3600
    words = f"{money_words(hourly, prices.currency)} per hour"
    yield ok(
        f"{what}: {words}, {money_words(most, prices.currency)} if it runs until its maxRunningTime; list prices of "
        f"{prices.fetched_at:%Y-%m-%d}"
    )
    if prices.is_old(datetime.now(UTC)):
        yield limit(f"the price list is older than {TOO_OLD_DAYS} days", UPDATE)
