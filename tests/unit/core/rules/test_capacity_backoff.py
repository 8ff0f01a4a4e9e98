"""When VMs are requested again after capacity errors, and which errors belong to one search for
capacity.

A pass is one request for the missing VMs in each of the job's zones. A placement round, in the
`round` of a placement and of an event, is one such request.

An attempt is one execution of the whole job. A gang is the members of a job that start together.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from tests.support.decisions import action_of
from tests.support.jobs import WORKER_0, a_job, a_plan, a_replica, a_state, at
from trainmaster.core.actions import Budget, CancelJob, ContinueProvisioning, FailJob, RerunJob
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CapacityErrorKind, Deadline, DeadlinePassed, VmsNotCreated
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, Placement, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.capacity_backoff import is_too_early, next_request_at
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import RETRY_JITTER, RETRY_MAX

ZONES = ("us-central1-a", "us-central1-b", "us-central1-f")
WEEK_S = 7 * 24 * 3600
SWEEP_S = 60
MISSING = a_replica(
    WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(0)
)


def preparing() -> State:
    job = a_job(JobState.PREPARING, a_plan(zones=ZONES, max_wait_s=None))
    waiting = tuple(
        a_replica(replica_id, ReplicaState.WAITING, ordered_at=at(0))
        for replica_id in job.plan.replica_ids
    )
    return State(job, waiting, whole=True)


def decide(
    state: State, seconds: float, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT
) -> Decision:
    """Judge the failure of the request that the job makes now."""
    job = state.job
    event = VmsNotCreated(
        job.job_id,
        attempt=job.attempt,
        zone=job.zone,
        round=job.placement.round,
        error_kind=kind,
        code="X",
        message="no",
        at=at(seconds),
    )
    return judge(state, event, at(seconds))


def after_error(
    state: State, seconds: float, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT
) -> State:
    return apply(state, evolve(state, decide(state, seconds, kind), at(seconds)))


def error_times(state: State, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT) -> list[float]:
    """Return when requests fail until the job ends, if no request ever succeeds and a sweep comes
    every minute.
    """
    times: list[float] = []
    now = 0.0
    while not state.job.state.is_terminal:
        if is_too_early(state.job, at(now)):
            now += SWEEP_S
            continue
        times.append(now)
        state = after_error(state, now, kind)
    return times


def test_stockouts_of_a_week_are_a_pass_a_minute_for_an_hour_and_750_passes_in_all() -> None:
    times = error_times(preparing())
    passes = times[:: len(ZONES)]
    assert len(times) <= 750 * len(ZONES), "entries in the ledger of the longest search"
    assert sum(time < 3600 for time in passes) == 60
    gaps = [later - earlier for earlier, later in pairwise(passes)]
    longest_s = RETRY_MAX.total_seconds() * (1 + RETRY_JITTER) + SWEEP_S
    assert max(gaps) <= longest_s
    assert 0 <= times[-1] - WEEK_S <= longest_s, "the job ends after a week"
    assert times[:3] == [0, 0, 0], "the next zone is tried at once"


def test_missing_quota_is_retried_at_the_same_pace_in_one_zone() -> None:
    times = error_times(preparing(), CapacityErrorKind.QUOTA)
    assert len(times) <= 750
    assert times[:3] == [0, 60, 120]


def test_next_pass_differs_between_jobs_and_is_the_same_for_every_repetition() -> None:
    jobs = [a_job(job_id=f"digits_{number}") for number in range(50)]
    now = at(36000)
    moments = {next_request_at(job, at(0), now) for job in jobs}
    assert len(moments) > 40
    first, last = (now + RETRY_MAX * (1 + jitter) for jitter in (-RETRY_JITTER, RETRY_JITTER))
    assert all(first <= moment <= last for moment in moments)
    assert moments == {next_request_at(job, at(0), now) for job in jobs}


def test_only_the_last_zone_of_a_pass_delays_the_next_request() -> None:
    state = preparing()
    texts = []
    for zone_number in range(3):
        decision = decide(state, 10)
        assert (action_of(decision, ContinueProvisioning).next_at is None) == (zone_number < 2)
        texts.append(decision.text)
        state = after_error(state, 10)
    assert state.job.placement.since == at(10)
    assert ": trying us-central1-a next in " in texts[-1]


def test_backoff_does_not_delay_the_wait_deadline() -> None:
    job = a_job(
        JobState.PREPARING,
        placement=Placement(zone_index=0, round=9, since=at(0), next_at=at(5000)),
    )
    event = DeadlinePassed("digits_1", Deadline.WAIT, at(1800))
    assert isinstance(judge(a_state(job=job), event, at(1800)).action, CancelJob)


def test_later_search_for_capacity_begins_with_short_intervals_again() -> None:
    """VMs were created after a day of errors.

    One was lost in the second week, before the job ever ran.
    """
    long_ago = Placement(zone_index=0, round=300, since=at(0))
    lost = replace(MISSING, ordered_at=at(100_000))
    state = a_state(
        lost, job=a_job(JobState.PREPARING, a_plan(zones=ZONES[:1]), placement=long_ago)
    )
    action = action_of(decide(state, 100_010), ContinueProvisioning)
    assert action.since == at(100_010)
    assert action.next_at is not None
    assert action.next_at - at(100_010) < timedelta(seconds=60)


def test_missing_part_of_a_gang_is_requested_for_15_minutes_until_the_gang_moves() -> None:
    state = a_state(MISSING, job=a_job(plan=a_plan(zones=ZONES)))
    now, requests = 0.0, 0
    while isinstance(action := decide(state, now).action, ContinueProvisioning):
        assert action.zone_index == 0
        state, requests = after_error(state, now), requests + 1
        now += 60
        assert not is_too_early(state.job, at(now))
        assert is_too_early(state.job, at(now - 20))
    assert isinstance(action, RerunJob)
    assert (requests, now) == (15, 900)


def after_move() -> State:
    """A running job whose whole gang has moved to a zone that has no capacity either."""
    state = a_state(
        MISSING,
        job=a_job(
            plan=a_plan(zones=ZONES), placement=Placement(zone_index=0, round=5, since=at(60))
        ),
    )
    return after_error(state, 900)


def test_gang_that_moved_tries_zone_after_zone_without_another_rerun() -> None:
    state = after_move()
    assert (state.job.attempt, state.job.placement.since) == (2, at(60))
    for errors in range(1, 300):
        seconds = 900 + 300 * errors
        assert (
            action_of(decide(state, seconds), ContinueProvisioning).zone_index == (1 + errors) % 3
        )
        state = after_error(state, seconds)
    assert state.job.attempt == 2


def test_part_of_a_gang_that_is_ready_after_a_move_is_kept() -> None:
    state = after_move()
    chief = replace(state.replicas[0], state=ReplicaState.RUNNING, ready_at=at(1000))
    partly_ready = replace(state, replicas=(chief, *state.replicas[1:]))
    action = action_of(decide(partly_ready, 1100), ContinueProvisioning)
    assert action.zone_index == partly_ready.job.placement.zone_index


def test_rerun_ends_the_search_and_keeps_existing_vms_in_their_zone() -> None:
    placement = Placement(zone_index=0, round=5, since=at(60), next_at=at(5000))
    crashed = a_state(job=a_job(plan=a_plan(zones=ZONES), placement=placement))
    rerun = Decision(Rule.CRASH, Reason.CRASH_SIGNAL, text="", action=RerunJob(Budget.RERUNS))
    state = apply(crashed, evolve(crashed, rerun, at(100)))
    assert (state.job.placement.since, state.job.placement.next_at) == (None, None)
    for seconds in (101, 160, 220):
        assert action_of(decide(state, seconds), ContinueProvisioning).zone_index == 0
        state = after_error(state, seconds)


def test_request_that_is_wrong_is_not_repeated() -> None:
    assert isinstance(decide(preparing(), 10, CapacityErrorKind.DENIED).action, FailJob)
