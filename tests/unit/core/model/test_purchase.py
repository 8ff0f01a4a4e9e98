"""How VMs are bought: the price of each VM of a replica, and that every price class is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import a_job, a_plan
from trainmaster.core.model.job import Job
from trainmaster.core.model.purchase import (
    FlexStart,
    OnDemand,
    PriceClass,
    Purchase,
    Reserved,
    Spot,
)
from trainmaster.gcp.firestore import documents

PRICES: tuple[PriceClass, ...] = (
    OnDemand(),
    Reserved("mine"),
    Spot(),
    Spot(losses_max=3),
    Spot(losses_max=3, then=Reserved("mine")),
    FlexStart(),
)


TWO_SPOT_VMS = Spot(losses_max=2)
"""After the second loss, VMs are bought on demand."""
SPOT_THEN_RESERVED = Spot(losses_max=2, then=Reserved("mine"))
ONLY_SPOT = Spot(losses_max=None, then=Reserved("mine"))
"""No number of losses is too many."""


@pytest.mark.parametrize(
    ("price", "prices"),
    [
        (OnDemand(), (OnDemand(),)),
        (Spot(), (Spot(),)),
        (TWO_SPOT_VMS, (TWO_SPOT_VMS, OnDemand())),
        (SPOT_THEN_RESERVED, (SPOT_THEN_RESERVED, Reserved("mine"))),
        (ONLY_SPOT, (ONLY_SPOT,)),
    ],
)
def test_replica_gets_each_price_of_its_purchase_in_order(
    price: PriceClass, prices: tuple[PriceClass, ...]
) -> None:
    purchase = Purchase(price)
    assert purchase.prices == prices
    first_five = [purchase.price_after(vms_lost) for vms_lost in range(5)]
    assert tuple(dict.fromkeys(first_five)) == prices


@pytest.mark.parametrize("price", PRICES)
@pytest.mark.parametrize("is_queued", [False, True])
def test_purchase_of_a_stored_job_is_read_as_it_was_written(
    price: PriceClass, *, is_queued: bool
) -> None:
    plan = a_plan()
    purchase = Purchase(price, is_queued)
    groups = tuple(replace(group, purchase=purchase) for group in plan.groups)
    job = a_job(plan=replace(plan, groups=groups))
    assert documents.read(Job, documents.job_document(job)) == job
