"""Every scenario of `python -m bench.scale` with a few jobs, and the models of Google's limits."""

from __future__ import annotations

from functools import partial

import pytest

from bench.costs import job_without_faults
from bench.scale import google
from bench.scale.__main__ import RUN_S, run, wait_until
from bench.scale.jobs import Installation
from bench.scale.virtual_time import Slots, World
from trainmaster.core.model.job import JobState
from trainmaster.messaging import topics

JOBS = 4
REPLICAS = 10


def jobs_until_the_end(jobs: int = JOBS) -> Installation:
    """Submit jobs and let them run to their end."""
    installation = Installation(["us-central1"], run_s=RUN_S)
    for number in range(jobs):
        installation.submit(number, REPLICAS)
    wait_until(installation, lambda: installation.ended() == jobs)
    return installation


def test_jobs_run_to_their_end_and_each_message_is_delivered_once() -> None:
    installation = jobs_until_the_end()
    loads = installation.functions.loads
    assert [job.state for job in installation.firestore.memory.recent_jobs(100)] == [
        JobState.SUCCEEDED
    ] * JOBS
    assert loads[topics.VM_READY].deliveries == JOBS * REPLICAS
    assert loads[topics.REPLICA_EXIT].deliveries == JOBS * REPLICAS
    assert sum(load.failures for load in loads.values()) == 0
    compute = installation.compute
    assert compute.calls["directives"] == compute.calls["deletions"] == JOBS * REPLICAS
    assert compute.vms_max == JOBS * REPLICAS


def test_job_needs_the_writes_of_the_table_of_costs_beside_those_of_leases_and_sweeps() -> None:
    """VMs take their time here, so the sweep requests more deliveries than the table has."""
    installation = jobs_until_the_end(1)
    memory = installation.firestore.memory
    wait_until(installation, lambda: not memory.jobs_with_pending())  # all exits are confirmed
    table = job_without_faults()
    counts = installation.firestore.counts
    leases = counts.deletes + counts.calls["extend_lease"]
    sweeps = counts.calls["note_sweep_requests"] + counts.calls["note_sweep_reached"]
    assert counts.writes - leases - sweeps == table.writes.at(REPLICAS) - table.deletes.at(REPLICAS)


def test_quota_of_changes_delays_jobs_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "CHANGES_MAX", 20)
    installation = jobs_until_the_end()
    assert installation.compute.refused["changes"] > 0
    assert installation.compute.failed["changes"] > 0
    assert installation.functions.loads[topics.PROVISION].failures > 0
    assert installation.functions.loads[topics.PROVISION].dead == 0
    # The changes for 40 VMs need more than two minutes of 20 changes each.
    assert max(installation.started_s.values()) > 120


def test_list_that_excludes_too_many_vms_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "EXCLUDED_FREE", 5)
    monkeypatch.setattr(google, "EXCLUDED_MAX", 100)
    assert jobs_until_the_end().compute.refused["excluded"] > 0


@pytest.mark.parametrize(("scenario", "replicas"), [("jobs", 3), ("ends", 3), ("tuning", 1)])
def test_every_scenario_prints_its_figures(scenario: str, replicas: int) -> None:
    lines = list(run(scenario, 1, replicas, 1))
    assert any(line.startswith("last VM gone after, min: ") for line in lines)
    assert any(line.startswith("Firestore: ") for line in lines)


def test_functions_are_those_of_the_installation() -> None:
    table = {
        topic: (deliveries_at_a_time, instances)
        for names, deliveries_at_a_time, instances in google.functions()
        for topic in names
    }
    assert table[topics.PROVISION] == (80, 20), "four deliveries at a time in each of 20 instances"
    assert table[topics.SWEEP] == (1, 1)
    assert table[topics.REPLICA_EXIT] == (320, 20)


def test_work_waits_for_a_place_in_the_order_of_its_arrival() -> None:
    world = World()
    slots = Slots(world, 2)
    ends: list[tuple[str, float]] = []

    def work(name: str) -> None:
        world.pause(10)
        ends.append((name, world.now_s))

    for name in "abcd":
        slots.start(partial(work, name))
    world.run(until_s=100)
    assert ends == [("a", 10), ("b", 10), ("c", 20), ("d", 20)]
    assert slots.waiting_max == 2


def test_tasks_run_side_by_side_and_the_first_error_is_raised() -> None:
    world = World()
    ended: list[float] = []

    def task(seconds: float, *, fails: bool = False) -> None:
        world.pause(seconds)
        ended.append(world.now_s)
        if fails:
            raise ValueError(seconds)

    def work() -> None:
        tasks = [lambda: task(3), lambda: task(2, fails=True), lambda: task(1, fails=True)]
        with pytest.raises(ValueError, match="2"):
            world.run_all(2, tasks)
        ended.append(world.now_s)

    world.start(work)
    world.run(until_s=100)
    assert ended == [2, 3, 3, 3]
