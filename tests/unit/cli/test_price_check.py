"""The price of a job before it is submitted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.support.jobs import a_plan, change_plan
from tests.unit.cost.price_lists import price_list
from trainmaster.cli.doctor.findings import Finding, Status
from trainmaster.cli.doctor.job_checks import check_price
from trainmaster.core.model.cap import Cap
from trainmaster.core.model.money import Money
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown


def new_prices() -> PriceList:
    return replace(price_list(), fetched_at=datetime.now(UTC))


def check(prices: PriceList | Unknown, region: str = "us-central1") -> list[Finding]:
    return list(
        check_price(change_plan(a_plan(workers=2), region=region), "3 x n1-standard-4", prices)
    )


def test_price_is_shown_per_hour_and_at_most() -> None:
    (finding,) = check(new_prices())
    assert finding.status is Status.OK
    assert finding.what.startswith(
        "price of 3 x n1-standard-4: 0.6399 USD per hour, 0.6399 USD if it runs until its max"
    )


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("0.5", "0.6399 USD per hour, 0.5 USD at most, by trainmaster.maxCost; list"),
        ("0.7", "0.6399 USD per hour, 0.6399 USD if it runs until its maxRunningTime; list"),
    ],
    ids=["cap ends the job", "time ends the job"],
)
def test_price_at_most_is_that_of_the_limit_that_ends_the_job_first(
    amount: str, words: str
) -> None:
    plan = a_plan(workers=2)
    limits = replace(plan.limits, cap=Cap(Money(Decimal(amount), "USD")))
    price, *_ = check_price(replace(plan, limits=limits), "3 x n1-standard-4", new_prices())
    assert words in price.what


def test_old_prices_are_shown_with_a_hint() -> None:
    prices = replace(price_list(), fetched_at=datetime.now(UTC) - timedelta(days=91))
    price, hint = check(prices)
    assert price.status is Status.OK
    assert (hint.status, hint.fix) == (Status.LIMIT, "run `trainmaster prices update`")


@pytest.mark.parametrize(
    ("prices", "region", "reason"),
    [
        (Unknown("there is no price list"), "us-central1", "there is no price list"),
        (new_prices(), "me-west1", "no on-demand price of n1 core in me-west1"),
    ],
)
def test_price_that_is_not_known_is_not_guessed(
    prices: PriceList | Unknown, region: str, reason: str
) -> None:
    (finding,) = check(prices, region)
    assert finding.status is Status.NOT_CHECKED
    assert reason in finding.what
