"""Phases and machine time, derived from the ledgers of whole jobs.

In `World`, each message of an agent takes a second, so the three replicas of a job become ready one
after the other.

An attempt is one execution of the whole job.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.jobs import CHIEF, START, WORKER_0, WORKER_1, a_spec
from tests.support.machine_time import world_goodput
from tests.support.world import World
from trainmaster.core.ledger import fold
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.reporting.history import read_history
from trainmaster.core.reporting.phases import Phase, Span, job_spans, replica_spans
from trainmaster.presentation.ml_units import usage

MESSAGE_S = 1
RECONCILIATION_S = 0.25
"""The pause of a reconciliation of desired and existing VMs that waits for one to be created."""


def a_job_with_faults() -> World:
    """Run a job that loses programs and a VM on the way, and succeeds."""
    world = World(is_independent=True)
    world.start_running()
    world.wait(100)
    world.kill(WORKER_0)
    world.deliver()
    world.wait(10)
    world.send("vm-ready", WORKER_0)
    world.deliver()
    world.wait(100)
    world.send("maintenance", WORKER_1, cause="preemption")
    world.deliver()
    world.wait(30)
    world.send("vm-ready", WORKER_1)
    world.deliver()
    world.wait(50)
    world.exit_program(CHIEF, 1)
    world.deliver()
    world.report_all_ready()
    world.deliver()
    world.wait(200)  # longer than three minutes: it does not run again for the restarted chief
    world.exit_program(WORKER_0, 0)
    world.deliver()
    world.wait(20)
    world.exit_program(CHIEF, 0)
    world.deliver()
    return world


def test_history_of_a_job_with_faults_ends_in_the_folded_state() -> None:
    world = a_job_with_faults()
    assert world.history.state == fold(world.ledger)
    assert world.state == JobState.SUCCEEDED


def test_history_of_an_empty_ledger_is_none() -> None:
    assert read_history(()) is None


@pytest.mark.parametrize("count", range(1, 12))
def test_history_of_every_prefix_of_a_ledger_ends_in_the_folded_state(count: int) -> None:
    entries = a_job_with_faults().ledger[:count]
    history = read_history(entries)
    assert history is not None
    assert history.state == fold(entries)


def test_phases_of_a_replica_follow_each_other_without_a_gap() -> None:
    world = a_job_with_faults()
    for replica_id in (CHIEF, WORKER_0, WORKER_1):
        spans = [span for span in replica_spans(world.history) if span.replica_id == replica_id]
        assert spans[0].start == START
        assert spans[-1].end == world.job.ended_at
        assert all(span.end == following.start for span, following in pairwise(spans))


def test_phases_of_a_killed_and_a_preempted_worker_name_what_each_waits_for() -> None:
    phases = [span.phase for span in spans_of(a_job_with_faults(), WORKER_0, attempt=1)]
    assert phases[:4] == [Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.RUNNING]
    phases = [span.phase for span in spans_of(a_job_with_faults(), WORKER_1, attempt=1)]
    assert phases == [Phase.STARTING, Phase.RUNNING, Phase.REPLACING, Phase.RUNNING]


def spans_of(world: World, replica_id: ReplicaId, attempt: int) -> list[Span]:
    """Return the phases of a replica that lasted for some time."""
    return [
        span
        for span in replica_spans(world.history)
        if (span.attempt, span.replica_id) == (attempt, replica_id) and span.seconds(world.now) > 0
    ]


def test_job_spans_are_the_states_before_the_end() -> None:
    world = a_job_with_faults()
    spans = job_spans(world.history)
    assert [span.state for span in spans] == [JobState.QUEUED, JobState.PREPARING, JobState.RUNNING]
    assert spans[-1].end == world.job.ended_at


def test_machine_time_of_a_job_with_faults_sums_to_its_usage() -> None:
    world = a_job_with_faults()
    result = world_goodput(world)
    took = world.job.ended_at - world.job.started_at  # type: ignore[operator]
    assert result.counted_s == pytest.approx(3 * took.total_seconds())
    assert round(result.counted_s / 3600, 2) == usage(world.job, world.now).machine_hours


def test_machine_time_of_a_running_job_sums_to_its_usage_so_far() -> None:
    world = World(is_independent=True)
    world.start_running()
    world.wait(600)
    assert (
        round(world_goodput(world).counted_s / 3600, 2) == usage(world.job, world.now).machine_hours
    )


def test_machine_time_of_each_attempt_is_listed() -> None:
    world = World(is_independent=True)
    world.submit(
        {
            **a_spec(),
            "trainmaster": {"restartJobOnWorkerRestart": True, "independentReplicas": True},
        }
    )
    world.deliver()
    world.report_all_ready()
    world.wait(100)
    world.kill(WORKER_0)
    world.deliver()
    world.report_all_ready()
    world.wait(50)
    attempts = world_goodput(world).attempts
    assert [attempt.attempt for attempt in attempts] == [1, 2]
    assert [span.phase for span in spans_of(world, WORKER_1, attempt=2)] == [
        Phase.STARTING,
        Phase.RUNNING,
    ]
    all_run_s = 100 + MESSAGE_S + RECONCILIATION_S
    assert attempts[0].counted_s[Phase.RUNNING] == 3 * all_run_s
    chief_first_s, worker_0_first_s = 2 * MESSAGE_S, MESSAGE_S
    assert attempts[1].counted_s[Phase.RUNNING] == 3 * 50 + chief_first_s + worker_0_first_s


def test_machine_time_by_phase_names_restarts_replacements_and_completion() -> None:
    (attempt,) = world_goodput(a_job_with_faults()).attempts
    # The waits of that job, and the message that ends each of them.
    assert attempt.counted_s[Phase.RESTARTING] >= 10 + MESSAGE_S
    assert attempt.counted_s[Phase.REPLACING] == 30 + MESSAGE_S
    assert attempt.counted_s[Phase.COMPLETED] == 20 + MESSAGE_S


def test_lost_work_is_at_most_the_time_of_incarnations_that_did_not_end_well() -> None:
    world = World(is_independent=True)
    world.start_running()
    assert world.job.started_at is not None
    world.wait(99)
    world.kill(WORKER_0)
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.wait(100)
    result = world_goodput(world)
    before_running_s = MESSAGE_S  # worker 1 reports ready after worker 0, and then the job runs
    assert result.lost.at_most_s == before_running_s + RECONCILIATION_S + 99 + MESSAGE_S
    assert result.lost.at_least_s == 0
    assert result.at_least is not None
    assert result.at_most is not None
    assert result.at_least < result.at_most < 1
    assert "of the machine time" in result.words


def test_work_of_a_job_without_faults_is_not_lost() -> None:
    world = World(is_independent=True)
    world.start_running()
    world.wait(100)
    result = world_goodput(world)
    assert result.lost.at_most_s == 0
    assert result.at_least == result.at_most == 1


def test_machine_time_of_a_queued_job_is_listed_and_not_counted() -> None:
    world = World(limits={"vcpus": 12})
    world.start_running()
    world.job_id = "digits_2"
    world.submit(a_spec(), source="gs://b/jobs/second.yaml#1")
    world.deliver()
    world.wait(60)
    result = world_goodput(world)
    assert world.state == JobState.QUEUED
    assert result.attempts[0].total_s[Phase.QUEUED] >= 3 * 60  # of three machines
    assert result.counted_s == 0
    assert result.words == ""
