"""The limit of all jobs together, when a running job moves to a larger alternative."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_spec
from tests.support.world import World
from trainmaster.core.model.job import JobState
from trainmaster.core.rules.admission_queue import used_resources
from trainmaster.core.timeouts import USEFUL_LIFE_MIN
from trainmaster.flows import submit

SMALL, LARGE = "us-central1-a", "us-central1-b"
LIMIT_VCPUS = 24
"""What the first job needs in its larger alternative. In the smaller one it needs half of it."""


@pytest.fixture
def world() -> World:
    """A world in which the first job runs in its smaller alternative."""
    world = World(limits={"vcpus": LIMIT_VCPUS})
    alternatives = [
        {"zones": [SMALL]},
        {"zones": [LARGE], "machineSpec": {"machineType": "n1-standard-8"}},
    ]
    world.submit({**a_spec(), "trainmaster": {"placement": {"ordered": alternatives}}})
    world.deliver()
    world.report_all_ready()
    return world


def add_second_job(world: World) -> JobState:
    """Submit a job that needs the half that the first one does not use now; return its state."""
    world.wait(1)
    document = {"jobId": "second", **a_spec()}
    submit.handle(json.dumps(document).encode(), "gs://b/jobs/second.yaml#1", world.deps)
    world.deliver()
    loaded = world.store.load("second")
    assert loaded
    return loaded.state.job.state


def move_to_larger_alternative(world: World) -> None:
    world.wait((USEFUL_LIFE_MIN + timedelta(minutes=1)).total_seconds())
    assert isinstance(world.fleet.capacity, dict)
    world.fleet.capacity[SMALL] = 0
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        world.send("maintenance", replica_id, cause="preemption")
        world.fleet.delete(world.vm(replica_id))
    world.deliver()
    assert {vm.zone for vm in world.vms} == {LARGE}


def test_limit_holds_when_a_running_job_moves_to_a_larger_alternative(world: World) -> None:
    state = add_second_job(world)
    move_to_larger_alternative(world)
    machines = {"n1-standard-4": 4, "n1-standard-8": 8}
    jobs = [job for job in world.store.live_jobs().jobs if job.state is not JobState.QUEUED]
    in_use = sum(
        group.count * machines[group.machine_type]
        for job in jobs
        for group in job.placed.plan.groups
    )
    assert in_use <= LIMIT_VCPUS
    assert state is JobState.QUEUED


def test_job_counts_with_its_larger_alternative_while_it_runs_in_the_smaller_one(
    world: World,
) -> None:
    assert world.state == "RUNNING"
    assert used_resources(world.store.live_jobs().jobs)["vcpus"] == LIMIT_VCPUS
    world.limits["vcpus"] = LIMIT_VCPUS + 12
    assert add_second_job(world) is JobState.PREPARING


def test_end_of_the_job_admits_the_one_that_waited(world: World) -> None:
    assert add_second_job(world) is JobState.QUEUED
    world.exit_program(CHIEF, 0)
    world.deliver()
    loaded = world.store.load("second")
    assert loaded
    assert loaded.state.job.state is JobState.PREPARING
