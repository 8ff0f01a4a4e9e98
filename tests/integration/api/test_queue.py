"""Limits of what all jobs together may use, as the API's clients see them."""

from __future__ import annotations

import pytest

from tests.integration.api.client import JOBS, Api
from tests.support.jobs import a_spec
from tests.support.world import World


@pytest.fixture
def limited(api: Api, world: World) -> Api:
    """Room for one job of 12 vCPUs at a time."""
    world.limits["vcpus"] = 12
    for name in ("first", "second", "third"):
        api.create(name)
        world.wait(1)
        world.deliver()
    return api


def test_a_job_that_waits_has_its_position_and_others_have_none(limited: Api) -> None:
    answers = {name: limited.get(name) for name in ("first", "second", "third")}
    assert {name: (it["state"], it["jobPosition"]) for name, it in answers.items()} == {
        "first": ("PREPARING", "0"),
        "second": ("QUEUED", "1"),
        "third": ("QUEUED", "2"),
    }
    listed = limited.list()["jobs"]
    assert {job["jobId"]: job["jobPosition"] for job in listed} == {"first": "0", "second": "1", "third": "2"}


def test_who_is_cancelled_gives_its_place_to_the_next(limited: Api) -> None:
    limited.cancel("second")
    assert limited.get("third")["jobPosition"] == "1"


def test_a_job_that_could_never_start_is_refused_in_the_services_words(limited: Api, world: World) -> None:
    world.limits["vcpus"] = 8
    error = limited.refused("POST", JOBS, {"jobId": "huge", **a_spec()})
    sentence = "The request for 12 vcpus exceeds the allowed maximum of 8 vcpus."
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert error["message"] == f"Quota failure for project my-project. {sentence}"
    assert limited.ask("GET", f"{JOBS}/huge")[0] == 404
