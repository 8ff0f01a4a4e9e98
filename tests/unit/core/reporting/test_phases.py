"""The search for a VM and its setup: the start of the agent separates the two phases.

In `World`, each message of an agent takes a second: a replica that reports after a wait of 89 s is
ready 90 s after the acceptance of its job.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_spec, at
from tests.support.machine_time import world_goodput
from tests.support.world import World
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.phases import Phase, Span, replica_spans

MACHINES = (CHIEF, WORKER_0, WORKER_1)


def submitted() -> World:
    world = World(is_independent=True)
    world.submit()
    world.deliver()
    return world


def report_ready(world: World, replica_id: ReplicaId, *, agent_started_s: float) -> None:
    """Report the replica as ready. `agent_started_s`: seconds since the acceptance of the job."""
    world.send("vm-ready", replica_id, agent_started_at=at(agent_started_s).isoformat())


def lengths(world: World, replica_id: ReplicaId) -> list[tuple[Phase, float]]:
    """Return the phases that take time, in seconds."""
    found = ((span.phase, span.seconds(world.now)) for span in spans_of(world, replica_id))
    return [(phase, seconds) for phase, seconds in found if seconds]


def spans_of(world: World, replica_id: ReplicaId) -> list[Span]:
    return [span for span in replica_spans(world.history) if span.replica_id == replica_id]


def test_start_is_split_into_search_and_setup_where_the_agent_reports_its_start() -> None:
    world = submitted()
    world.wait(89)
    report_ready(world, CHIEF, agent_started_s=60)
    world.wait(10)
    assert lengths(world, CHIEF) == [
        (Phase.GETTING_MACHINES, 60),
        (Phase.SETTING_UP, 30),
        (Phase.RUNNING, 10),
    ]


def test_start_is_not_split_without_the_start_of_the_agent() -> None:
    world = submitted()
    world.wait(89)
    world.send("vm-ready", CHIEF)
    assert lengths(world, CHIEF)[0] == (Phase.STARTING, 90)
    # The chief's 90 s, and what the two workers, which still start, have waited.
    assert world_goodput(world).unsplit_s == 3 * 90


@pytest.mark.parametrize(
    ("agent_started_s", "phases"), [(-500, [Phase.SETTING_UP]), (500, [Phase.GETTING_MACHINES])]
)
def test_wrong_clock_of_a_vm_moves_no_span_out_of_its_bounds(
    agent_started_s: float, phases: list[Phase]
) -> None:
    world = submitted()
    world.wait(89)
    report_ready(world, CHIEF, agent_started_s=agent_started_s)
    assert lengths(world, CHIEF) == [(phase, 90) for phase in phases]


def test_replacement_is_split_and_restart_is_not() -> None:
    world = submitted()
    for replica_id in MACHINES:
        report_ready(world, replica_id, agent_started_s=0)
    world.wait(100)
    world.kill(WORKER_0)
    world.deliver()
    world.wait(9)
    report_ready(world, WORKER_0, agent_started_s=0)
    world.wait(100)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    lost_s = (world.now - START).total_seconds()
    world.wait(49)
    report_ready(world, WORKER_1, agent_started_s=lost_s + 20)
    # Each worker has been set up, and has run, before.
    _, _, *after_loss = lengths(world, WORKER_1)
    assert after_loss == [(Phase.REPLACING, 20), (Phase.SETTING_UP, 30)]
    _, _, (restart, restart_s), *_ = lengths(world, WORKER_0)
    assert restart is Phase.RESTARTING
    assert restart_s == pytest.approx(10, abs=0.5)
    assert world_goodput(world).unsplit_s == 0


def test_rerun_in_the_same_vm_has_a_setup_and_no_search() -> None:
    world = World(is_independent=True)
    world.submit(
        {
            **a_spec(),
            "trainmaster": {"restartJobOnWorkerRestart": True, "independentReplicas": True},
        }
    )
    world.deliver()
    for replica_id in MACHINES:
        report_ready(world, replica_id, agent_started_s=0)
    world.wait(100)
    world.kill(WORKER_0)
    world.deliver()
    world.wait(30)
    for replica_id in MACHINES:
        report_ready(world, replica_id, agent_started_s=0)
    assert world.job.attempt == 2
    assert [span.phase for span in spans_of(world, WORKER_1) if span.attempt == 2] == [
        Phase.SETTING_UP,
        Phase.RUNNING,
    ]


def test_paid_time_is_that_of_the_phases_with_a_vm() -> None:
    world = submitted()
    world.wait(88)
    for replica_id in MACHINES:
        report_ready(world, replica_id, agent_started_s=60)
    world.wait(100)
    result = world_goodput(world)
    setups_s, runs_s = (29, 30, 31), (102, 101, 100)  # of the chief and the two workers
    assert result.paid_s == sum(setups_s) + sum(runs_s)
    assert result.at_most == pytest.approx(sum(runs_s) / result.paid_s)


def test_split_phases_follow_each_other_without_a_gap() -> None:
    world = submitted()
    for number, replica_id in enumerate(MACHINES):
        world.wait(20)
        report_ready(world, replica_id, agent_started_s=10 * number)
    for replica_id in MACHINES:
        spans = spans_of(world, replica_id)
        assert spans[0].start == START
        assert all(span.end == following.start for span, following in pairwise(spans))


def test_span_of_a_spot_vm_is_marked_until_the_replica_gets_one_on_demand() -> None:
    world = World(is_independent=True)
    world.submit(
        {
            **a_spec(),
            "trainmaster": {
                "spot": {"use": "all", "onDemandAfter": 1},
                "independentReplicas": True,
            },
        }
    )
    world.deliver()
    world.report_all_ready()
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.send("vm-ready", WORKER_1)
    assert [
        (span.phase, span.price.is_preemptible)
        for span in spans_of(world, WORKER_1)
        if span.phase is not Phase.QUEUED
    ] == [
        (Phase.STARTING, True),
        (Phase.RUNNING, True),
        (Phase.REPLACING, False),
        (Phase.RUNNING, False),
    ]
