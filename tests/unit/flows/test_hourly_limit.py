"""The limit `usd_per_hour`: what all running jobs cost at list prices, and jobs that
wait for it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.jobs import a_spec, change_plan
from tests.support.world import World
from tests.unit.cost.price_lists import FETCHED_AT, price_list
from trainmaster.core.model.job import JobState
from trainmaster.core.rules.admission_queue import queued_jobs
from trainmaster.cost.price_list import PriceList
from trainmaster.errors import PermanentError
from trainmaster.flows import submit

PRICES = price_list()


def a_world(limit: int = 1, prices: PriceList | None = PRICES, price_age_days: int = 1) -> World:
    now = FETCHED_AT + timedelta(days=price_age_days)
    return World(prices=prices, now=now, limits={"usd_per_hour": limit})


def add(world: World, job_id: str, **training: object) -> None:
    """Submit a job a second after the last one, and deliver all messages."""
    document = {"jobId": job_id, **a_spec(**training)}
    world.wait(1)
    submit.handle(json.dumps(document).encode(), f"gs://b/jobs/{job_id}.yaml#1", world.deps)
    world.deliver()


def states(world: World) -> dict[str, str]:
    return {job.job_id: job.state.value for job in world.store.recent_jobs(10)}


def test_job_waits_while_running_jobs_leave_too_little_of_the_rate() -> None:
    world = a_world()
    for job_id in ("a", "b", "c"):
        add(world, job_id, workerCount=1 if job_id == "c" else 2)
    assert states(world) == {
        "a": "PREPARING",
        "b": "QUEUED",
        "c": "QUEUED",
    }, "no job overtakes another"
    wait, _ = queued_jobs(world.store.live_jobs().jobs, world.limits)
    (rate,) = {
        job.plan.limits.usd_per_hour for job in world.store.recent_jobs(10) if job.job_id != "c"
    }
    assert 0.5 < rate < 0.7
    assert (
        wait.reason
        == f"it needs {rate:.2f} usd_per_hour, and {rate:.2f} of 1 are in use or reserved for jobs"
        " before it"
    )
    world.job_id = "a"
    world.report_all_ready()
    world.exit_program(world.job.plan.primary, 0)
    world.deliver()
    assert states(world) == {"a": "SUCCEEDED", "b": "PREPARING", "c": "QUEUED"}


def test_rate_is_that_of_the_dearest_machines_that_the_job_may_get() -> None:
    world = a_world(limit=100)
    extension = {
        "spot": {"use": "all", "onDemandAfter": 2},
        "placement": {"ordered": [{}, {"spot": "none"}]},
    }
    rates = []
    for job_id, more in (("a", {}), ("b", {"spot": "all"}), ("c", extension)):
        document = {"jobId": job_id, **a_spec(), "trainmaster": more}
        submit.handle(json.dumps(document).encode(), f"gs://b/{job_id}.yaml#1", world.deps)
        rates.append(world.store.recent_jobs(1)[0].plan.limits.usd_per_hour)
        world.wait(1)
    on_demand, spot, mixed = rates
    assert on_demand == mixed > 2 * spot > 0


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (
            a_world(prices=None),
            (
                "training_input Error: has machines without a known price, .*: there is no price"
                " list. Use "
            ),
        ),
        (
            a_world(),
            (
                "training_input Error: has machines that cost up to 4.48 USD per hour .* is 1. Use"
                " fewer"
            ),
        ),
        (a_world(prices=replace(PRICES, currency="EUR")), "list prices are in EUR"),
    ],
)
def test_job_that_could_never_start_is_refused(world: World, expected: str) -> None:
    with pytest.raises(PermanentError, match=expected):
        add(world, "a", workerCount=20)
    assert world.store.load("a") is None


def test_old_price_list_still_limits_and_jobs_from_before_the_limit_count_nothing() -> None:
    world = a_world(price_age_days=80)
    world.limits = {}
    add(world, "earlier")
    world.limits = {"usd_per_hour": 1}
    add(world, "a")
    assert states(world) == {"earlier": "PREPARING", "a": "PREPARING"}
    rates = {job.job_id: job.plan.limits.usd_per_hour for job in world.store.recent_jobs(2)}
    assert rates["earlier"] == 0
    assert rates["a"] > 0


def test_cents_add_up_to_the_limit_exactly() -> None:
    world = a_world()
    add(world, "a")
    job = world.store.recent_jobs(1)[0]
    tenth = replace(job, plan=change_plan(job.plan, usd_per_hour=0.1))
    running = [replace(tenth, job_id=f"r{number}") for number in range(9)]
    queued = [replace(tenth, job_id=f"q{number}", state=JobState.QUEUED) for number in range(2)]
    assert [wait.job_id for wait in queued_jobs([*running, *queued], {"usd_per_hour": 1})] == ["q1"]
