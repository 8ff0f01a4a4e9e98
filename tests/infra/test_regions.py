"""`region` moves everything: the control plane, the data, and the jobs.

The fixture `full_plan` has all that can be switched on (`conftest.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.infra.conftest import Plan

REGION = "europe-west1"
PLACES = {"location", "location_id", "locations", "region", "replicas", "zone"}


@pytest.fixture(scope="module")
def european(planned: Callable[..., Plan]) -> Plan:
    return planned(region=REGION)


def places_in(value: object) -> Iterator[object]:
    """Yield the values of all arguments that name a place, also such as `US` and `nam5`."""
    if isinstance(value, list):
        for item in value:
            yield from places_in(item)
    if isinstance(value, dict):
        yield from (value[name] for name in PLACES & value.keys() if value[name])
        yield from places_in([*value.values()])


def test_everything_of_an_installation_in_europe_is_in_europe(european: Plan) -> None:
    (subnetwork,) = european.of("google_compute_subnetwork").values()
    (router,) = european.of("google_compute_router").values()
    assert (subnetwork["region"], router["region"]) == (REGION, REGION)
    assert european.environments()["trainmaster-provision"]["TRAINMASTER_REGIONS"] == REGION
    values = [resource.values for resource in european.resources]
    assert set(places_in(values)) == {REGION}
    resources = json.dumps([*values, european.outputs])
    elsewhere = re.findall(r"\b(?:us|asia|europe)-(?:\w+?)\d(?:-[a-f])?\b", resources)
    assert set(elsewhere) == {REGION}
    assert not european.warnings()


def test_jobs_in_another_region_than_their_data_are_a_warning_of_the_plan(
    planned: Callable[..., Plan], full_plan: Plan
) -> None:
    apart = planned(region=REGION, worker_regions={"us-central1": "10.1.0.0/20"})
    (warning,) = apart.warnings()
    assert "Jobs run in us-central1" in warning
    assert f"the database are in {REGION}" in warning
    assert "Add europe-west1 to worker_regions" in warning
    assert len(full_plan.warnings()) == 1, "its jobs run in two regions, its data is in a third"
