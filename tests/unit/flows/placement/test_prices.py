"""What the alternatives of a job cost, with the transfer of its data, and the order of `anyOf`,
which follows the price.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from tests.support.jobs import CHIEF
from tests.support.world import World
from tests.unit.cost.price_lists import price_list
from tests.unit.flows.placement.placed_fleet import BIG, EAST, FULL, A, PlacedFleet, placed, submit
from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.core.reporting.phases import replica_spans
from trainmaster.cost.job_cost import hourly_cost, job_cost, ranked_by_price, transfer_price
from trainmaster.cost.sku import Unknown
from trainmaster.jobspec.accept import accept
from trainmaster.presentation.job_view import job_view
from trainmaster_local.memory.objects import MemoryObjects


def test_describe_names_the_candidate_and_returns_the_spec_as_submitted(world: World) -> None:
    submit(world, {"zones": [EAST[0]], "machineSpec": BIG, "spot": "all"})
    view = job_view(world.job, project="p")
    assert view["trainmaster"]["candidate"] == f"Spot n1-standard-8 in {EAST[0]}"
    assert json.loads(world.job.spec_json)["trainmaster"]["placement"]["ordered"][0]["zones"] == [
        EAST[0]
    ]


def test_cost_is_that_of_the_machine_region_and_pricing_of_each_vm(
    world: World, fleet: PlacedFleet
) -> None:
    fleet.failures = {(A, True): FULL}
    submit(world, {"zones": [A], "spot": "all"}, {"zones": ["europe-west4-a"], "machineSpec": BIG})
    world.report_all_ready()
    world.wait(3600)
    world.exit_program(CHIEF, 0)
    job, prices = world.job, price_list()
    cost = job_cost(job, replica_spans(world.history), prices, world.now)
    assert not isinstance(cost, Unknown), cost
    hourly = hourly_cost(job.plan.at(1), prices)
    assert not isinstance(hourly, Unknown)
    assert float(cost.total) == pytest.approx(float(hourly), rel=0.01)


def test_any_of_is_ordered_by_price_and_capacity_decides_within_a_band(
    world: World, fleet: PlacedFleet
) -> None:
    world.prices, world.regions = price_list(), ("us-central1", "europe-west4")
    fleet.failures = {(place, True): FULL for place in world.regions}
    submit(
        world, {"machineSpec": BIG}, {"zones": [A]}, {"regions": "any", "spot": "all"}, name="anyOf"
    )
    order = [(machine, spot) for _, machine, spot in fleet.order()]
    zones_of_both_regions = 7
    on_spot_vms = [("n1-standard-4", True)] * zones_of_both_regions
    assert order == [*on_spot_vms, ("n1-standard-4", False)]
    world.check()


@pytest.mark.parametrize(
    ("place", "gib", "region", "price"),
    [
        ("US-CENTRAL1", 200, "us-central1", 0),
        ("us-central1", 200, "us-east4", 4),
        ("NAM4", 200, "us-east1", 0),
        ("NAM4", 200, "us-west1", 4),
        ("EUROPE-WEST1", 50, "europe-west4", 1),
        ("US-CENTRAL1", None, "us-east4", "gib"),
        ("US-CENTRAL1", 200, "europe-west4", "no price of transfers from US-CENTRAL1"),
        ("ASIA-EAST1", 200, "asia-east2", "no price of transfers"),
        ("US", 200, "us-east4", "no price of transfers from US"),
        (None, 200, "us-east4", "location"),
    ],
)
def test_transfer_has_a_price_within_a_continent_and_a_reason_otherwise(
    place: str | None, gib: int | None, region: str, price: float | str
) -> None:
    found = transfer_price(gib, BucketPlace(place) if place else None, region, price_list())
    if isinstance(price, str):
        assert isinstance(found, Unknown)
        assert price in found.reason
    else:
        assert found == Decimal(str(price))


@pytest.mark.parametrize(
    ("gib", "first"), [(50, {"us-central1", "us-east1"}), (1000, {"us-central1"}), (None, None)]
)
def test_any_of_counts_the_transfer_of_data_to_a_region(
    world: World, gib: int | None, first: set[str] | None
) -> None:
    """Three VMs cost 0.7 USD an hour: over a day, 1 USD per start is within the band of 15 %, and
    20 USD are not.
    """
    world.prices, world.objects = price_list(), MemoryObjects()
    world.objects.places["my-data"] = BucketPlace("US-CENTRAL1")
    world.objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    data: dict[str, object] = {"uri": "gs://my-data/set"}
    if gib:
        data["gib"] = gib
    document = placed(
        {"regions": ["us-east1", "us-central1"]}, {"spot": "none", "machineSpec": BIG}, name="anyOf"
    )
    document["trainmaster"]["placement"]["data"] = data  # type: ignore[index]
    world.submit(document)
    plan = world.job.plan
    best = min(candidate.rank for candidate in plan.where.candidates)
    found = {
        zone.rpartition("-")[0]
        for zone, candidate in zip(plan.where.zones, plan.where.candidates, strict=True)
        if candidate.rank == best
    }
    assert found == (first or {"us-central1", "us-east1"})
    assert any("network traffic" in note.reason for note in plan.origin.substitutions)


def test_reservation_ranks_first_and_an_unknown_price_last() -> None:
    """The price list of the tests has no prices for us-east4."""
    listed: tuple[dict[str, object], ...] = (
        {"spot": "none"},
        {"zones": [A], "reservation": "r"},
        {"zones": ["us-east4-a"]},
        {"spot": "all"},
    )
    plan = ranked_by_price(
        accept(placed(*listed, name="anyOf"), default_job_id="j").plan, price_list(), {}
    )
    ranks = {candidate.option: candidate.rank for candidate in plan.where.candidates}
    assert sorted(ranks, key=lambda option: ranks[option]) == [1, 3, 0, 2]
    assert (ranks[1], ranks[3]) == (0, 1)


def test_any_of_with_one_machine_needs_no_prices(world: World) -> None:
    submit(world, {"regions": ["us-central1", "us-east1"], "spot": "all"}, name="anyOf")
    assert world.vms
