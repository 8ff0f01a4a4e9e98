"""Amounts of money: text, rounding, and a cap that ends a job exactly at its amount."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support.jobs import a_job, a_plan, change_plan
from trainmaster.core.model.cap import Cap, Rate
from trainmaster.core.model.job import Job
from trainmaster.core.model.money import Money, read_money, rounded_up
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.timeouts import COST_RESERVE_S
from trainmaster.gcp.firestore import documents


@pytest.mark.parametrize(
    ("text", "shown", "words"),
    [
        ("25 USD", "25 USD", "25.00 USD"),
        ("25.50 EUR", "25.5 EUR", "25.50 EUR"),
        ("100000 JPY", "100000 JPY", "100000.00 JPY"),
    ],
)
def test_money_is_read_and_shown(text: str, shown: str, words: str) -> None:
    money = read_money(text)
    assert (str(money), money.words) == (shown, words)


@pytest.mark.parametrize("text", ["25", "USD 25", "0.49USD", "-1 USD", "1e3 USD", "NaN USD", ""])
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 0\.49 USD"):
        read_money(text)


def test_product_is_rounded_to_cents() -> None:
    assert read_money("0.49 USD").times(1.16) == read_money("0.57 USD")


def test_shares_are_together_never_more_than_the_whole() -> None:
    for parts in range(1, 200):
        share = read_money("10 USD").share(parts)
        assert parts * share.amount <= 10 < (parts + 1) * share.amount + Decimal("0.01")


def test_cost_is_rounded_up() -> None:
    assert rounded_up(Decimal("0.0000001")) == Decimal("0.000001")
    assert rounded_up(Decimal("0.5")) == Decimal("0.5")


def test_cap_is_reached_at_exactly_its_amount() -> None:
    """With binary fractions, 0.7 and 0.1 are less than 0.8."""
    reserve = Decimal("0.1")
    cap = Cap(read_money("0.8 USD"), per_hour=reserve * 3600 / COST_RESERVE_S)
    assert cap.is_reached(Decimal("0.7"))
    assert not cap.is_reached(Decimal("0.699999"))


def test_money_of_a_job_is_stored_as_text_and_read_exactly() -> None:
    rate = Rate(candidate=0, task_type=TaskType.CHIEF, bought="spot", per_hour=Decimal("0.123457"))
    cap = Cap(
        Money(Decimal("0.1"), "USD"),
        per_hour=Decimal("0.3"),
        least_per_hour=Decimal("0.2"),
        rates=(rate,),
        spent=Decimal("0.7"),
    )
    job = replace(a_job(), plan=change_plan(a_plan(), cap=cap))
    document = documents.job_document(job)
    stored = json.loads(document["plan"])["limits"]["cap"]
    assert stored["limit"] == {"amount": "0.1", "currency": "USD"}
    assert (stored["per_hour"], stored["spent"]) == ("0.3", "0.7")
    assert documents.read(Job, document) == job
