"""The admission queue and its limits in the API."""

from __future__ import annotations

import pytest

from tests.integration.api.client import JOBS, Api
from tests.support.jobs import a_spec
from tests.support.world import World


@pytest.fixture
def limited(api: Api, world: World) -> Api:
    """Return an API whose limit allows one job of 12 vCPUs at a time, with three jobs."""
    world.limits["vcpus"] = 12
    for name in ("first", "second", "third"):
        api.create(name)
        world.wait(1)
        world.deliver()
    return api


def test_queued_jobs_have_their_position_and_others_zero(limited: Api) -> None:
    responses = {name: limited.get(name) for name in ("first", "second", "third")}
    assert {name: (job["state"], job["jobPosition"]) for name, job in responses.items()} == {
        "first": ("PREPARING", "0"),
        "second": ("QUEUED", "1"),
        "third": ("QUEUED", "2"),
    }
    listed = limited.list()["jobs"]
    assert {job["jobId"]: job["jobPosition"] for job in listed} == {
        "first": "0",
        "second": "1",
        "third": "2",
    }


def test_calls_about_queued_jobs_read_no_other_job(
    limited: Api, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand clients that poll a thousand jobs would else cost a million reads.

    A pass finds the positions.
    """
    with monkeypatch.context() as patch:
        patch.delattr(type(world.store), "live_jobs")
        assert limited.create("fourth")["jobPosition"] == "0"
        assert limited.get("third")["jobPosition"] == "2"
        assert {job["jobId"]: job["jobPosition"] for job in limited.list()["jobs"]}["third"] == "2"
        (step,) = limited.send("GET", f"{JOBS}/third:explain")[1]["nextSteps"]
        assert step.startswith("Position 2 in the admission queue: it needs 12 vcpus")
    world.deliver()
    assert limited.get("fourth")["jobPosition"] == "3"


def test_next_job_moves_up_when_a_queued_job_is_cancelled(limited: Api, world: World) -> None:
    limited.cancel("second")
    world.deliver()
    assert limited.get("third")["jobPosition"] == "1"


def test_job_over_the_limits_is_refused_with_the_services_message(
    limited: Api, world: World
) -> None:
    world.limits["vcpus"] = 8
    error = limited.send_refused("POST", JOBS, {"jobId": "huge", **a_spec()})
    sentence = "The request for 12 vcpus exceeds the allowed maximum of 8 vcpus."
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert error["message"] == f"Quota failure for project my-project. {sentence}"
    assert limited.send("GET", f"{JOBS}/huge")[0] == 404
