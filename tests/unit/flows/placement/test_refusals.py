"""Alternatives that this installation or Google refuses: the job is refused with the field, or
leaves the region.
"""

from __future__ import annotations

import pytest

from tests.support.world import World
from tests.unit.cost.price_lists import price_list
from tests.unit.flows.placement.placed_fleet import EAST, A, PlacedFleet, placed, submit
from trainmaster.core.events import CapacityErrorKind
from trainmaster.core.timeouts import REFUSED_MAX
from trainmaster.errors import PermanentError
from trainmaster.ports import NotCreated
from trainmaster_local.memory.objects import MemoryObjects


@pytest.mark.parametrize(
    "kind", [CapacityErrorKind.DENIED, CapacityErrorKind.BLOCKED, CapacityErrorKind.INTERNAL]
)
def test_refused_region_is_left_and_a_job_that_is_refused_everywhere_fails_after_an_hour(
    world: World, fleet: PlacedFleet, kind: CapacityErrorKind
) -> None:
    refusal = NotCreated(kind, "CONDITION_NOT_MET", "an organization policy forbids it")
    fleet.failures = {("us-central1", False): refusal, ("us-east1", False): refusal}
    submit(world, {"zones": [A, EAST[0]]}, {"zones": [EAST[1]], "spot": "all"})
    assert {vm.zone for vm in world.vms} == {EAST[1]}
    world.check()
    fleet.failures[("us-east1", True)] = refusal
    world.job_id = "digits_2"
    world.submit(placed({"zones": [A, EAST[0]]}), source="gs://b/jobs/digits.yaml#2")
    began_at = world.now
    while not world.has_ended:
        world.deliver()
        world.wait(60)
        world.provision()
        assert world.now - began_at < 2 * REFUSED_MAX
    assert (world.state, world.now - began_at >= REFUSED_MAX) == ("FAILED", True)
    world.check()


def test_missing_bucket_of_data_is_refused_and_one_that_may_not_be_seen_is_noted(
    world: World,
) -> None:
    world.objects = MemoryObjects()
    world.objects.missing_buckets.add("my-data")
    world.objects.forbidden_buckets.add("other")
    world.objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    document = placed({"spot": "all"}, name="anyOf")
    document["trainmaster"]["placement"]["data"] = {"uri": "gs://my-data/set"}  # type: ignore[index]
    with pytest.raises(
        PermanentError, match=r"trainmaster.placement.data.uri .*my-data, which does not exist"
    ):
        world.submit(document)
    document["trainmaster"]["placement"]["data"] = {"uri": "gs://other/set"}  # type: ignore[index]
    world.submit(document)
    assert "gs://other/set" in {note.requested for note in world.job.plan.origin.substitutions}


@pytest.mark.parametrize(
    ("alternatives", "name", "prices", "field"),
    [
        pytest.param(
            [{"spot": "all"}, {"regions": ["us-west1"]}],
            "ordered",
            True,
            "trainmaster.placement.ordered[1]",
            id="region",
        ),
        pytest.param(
            [{"spot": "all"}, {"zones": ["us-west1-a"]}],
            "anyOf",
            True,
            "trainmaster.placement.any_of[1]",
            id="zone",
        ),
        pytest.param(
            [{"spot": "all"}, {"spot": "none"}],
            "anyOf",
            False,
            "trainmaster.placement.any_of",
            id="no prices",
        ),
    ],
)
def test_job_that_this_installation_cannot_place_is_refused_with_the_field(
    world: World, alternatives: list[dict[str, object]], name: str, prices: bool, field: str
) -> None:
    world.regions = ("us-central1", "us-east1")
    world.prices = price_list() if prices else None
    with pytest.raises(
        PermanentError, match="worker_regions" if prices else "there is no price list"
    ) as caught:
        world.submit(placed(*alternatives, name=name))
    assert f"Field: {field} " in str(caught.value)
