"""How often machines are asked for, and when a search is another one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from shared.core.decisions import Budget, CancelJob, ContinueProvisioning, Decision, FailJob, Reason, RerunJob, Rule
from shared.core.events import CapacityErrorKind, Deadline, DeadlinePassed, VmsNotCreated
from shared.core.evolve import apply, evolve
from shared.core.model.job import JobState, Placement, State
from shared.core.model.replica import ReplicaState
from shared.core.rules.capacity_backoff import asks_at, is_too_early
from shared.core.rules.judge import judge
from tests.support.jobs import WORKER_0, a_job, a_plan, a_replica, a_state, at

ZONES = ("us-central1-a", "us-central1-b", "us-central1-f")
WEEK_S = 7 * 24 * 3600


def preparing(job_id: str = "digits_1", **changes: object) -> State:
    job = a_job(JobState.PREPARING, a_plan(zones=ZONES, max_wait_s=None), job_id=job_id, **changes)
    waiting = tuple(
        a_replica(replica_id, ReplicaState.WAITING, ordered_at=at(0)) for replica_id in job.plan.replica_ids
    )
    return State(job, waiting, whole=True)


def refuse(state: State, now: float, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT) -> Decision:
    job = state.job
    event = VmsNotCreated(job.job_id, job.attempt, job.zone, job.placement.round, kind, "X", "no", at(now))
    return judge(state, event, at(now))


def after(state: State, now: float, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT) -> State:
    return apply(state, evolve(state, refuse(state, now, kind), at(now)))


def refusals(state: State, kind: CapacityErrorKind = CapacityErrorKind.STOCKOUT) -> list[float]:
    """When it was refused, where nothing is ever had and the sweep comes every minute, until it is given up."""
    found: list[float] = []
    now = 0.0
    while not state.job.state.is_terminal:
        if is_too_early(state.job, at(now)):
            now += 60
            continue
        found.append(now)
        state = after(state, now, kind)
    return found


def test_a_week_of_refusals_is_a_round_a_minute_for_an_hour_and_750_in_all() -> None:
    times = refusals(preparing())
    rounds = times[:: len(ZONES)]
    assert len(times) <= 750 * len(ZONES), "what the ledger of the longest search holds"
    assert sum(at < 3600 for at in rounds) == 60, "the sweep's own pace"
    gaps = [later - earlier for earlier, later in pairwise(rounds)]
    assert max(gaps) <= 900 * 1.1 + 60
    assert times[-1] >= WEEK_S, "given up after a week, and not before"
    assert times[-1] - WEEK_S <= 900 * 1.1 + 60
    assert times[:3] == [0, 0, 0], "from zone to zone at once"


def test_quota_is_of_all_zones_and_is_asked_for_at_the_same_pace() -> None:
    times = refusals(preparing(), CapacityErrorKind.QUOTA)
    assert len(times) <= 750
    assert times[:3] == [0, 60, 120]


def test_jobs_that_were_refused_together_do_not_ask_together_and_each_always_at_the_same_time() -> None:
    jobs = [a_job(job_id=f"digits_{nth}") for nth in range(50)]
    moments = {asks_at(job, at(0), at(36000)) for job in jobs}
    assert len(moments) > 40
    assert all(at(36000 + 810) <= moment <= at(36000 + 990) for moment in moments)
    assert moments == {asks_at(job, at(0), at(36000)) for job in jobs}


def test_a_search_says_when_it_asks_next() -> None:
    state = preparing()
    texts = []
    for nth in range(3):
        decision = refuse(state, 10)
        assert isinstance(decision, ContinueProvisioning)
        assert (decision.next_at is None) == (nth < 2), "after the last zone"
        texts.append(decision.text)
        state = after(state, 10)
    assert state.job.placement.since == at(10)
    assert "; trying us-central1-a next, in " in texts[-1]


def test_the_deadline_of_a_job_that_waits_is_not_put_off() -> None:
    """The sweep looks at the clock, whenever machines are asked for next."""
    job = a_job(JobState.PREPARING, placement=Placement(0, 9, at(0), at(5000)))
    assert isinstance(judge(a_state(job=job), DeadlinePassed("digits_1", Deadline.WAIT, at(1800)), at(1800)), CancelJob)


def test_a_later_search_is_quick_again() -> None:
    """Machines were found after a day, and one was lost in its second week before the job ever ran."""
    long_ago = Placement(0, 300, since=at(0))
    lost = a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(100_000))
    state = a_state(lost, job=a_job(JobState.PREPARING, a_plan(zones=ZONES[:1]), placement=long_ago))
    decision = refuse(state, 100_010)
    assert isinstance(decision, ContinueProvisioning)
    assert decision.since == at(100_010)
    assert decision.next_at is not None
    assert decision.next_at - at(100_010) < timedelta(seconds=60)


def test_the_rest_of_a_gang_is_asked_for_every_minute_until_all_of_it_moves() -> None:
    lost = a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(0))
    state = a_state(lost, job=a_job(plan=a_plan(zones=ZONES)))
    now, asked = 0.0, 0
    while isinstance(decision := refuse(state, now), ContinueProvisioning):
        assert decision.zone_index == 0
        state, asked = apply(state, evolve(state, decision, at(now))), asked + 1
        now += 60
        assert not is_too_early(state.job, at(now))
        assert is_too_early(state.job, at(now - 20))
    assert isinstance(decision, RerunJob)
    assert (asked, now) == (15, 900)


def moved() -> State:
    """A running job whose whole gang moved, and found no room there either."""
    lost = a_replica(WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, ordered_at=at(0))
    state = a_state(lost, job=a_job(plan=a_plan(zones=ZONES), placement=Placement(0, 5, since=at(60))))
    return after(state, 900)


def test_a_gang_that_moved_goes_from_zone_to_zone_and_is_not_rerun_for_it() -> None:
    state = moved()
    assert (state.job.attempt, state.job.placement.since) == (2, at(60))
    for nth in range(1, 300):
        decision = refuse(state, 900 + 300 * nth)
        assert isinstance(decision, ContinueProvisioning)
        assert decision.zone_index == (1 + nth) % 3
        state = apply(state, evolve(state, decision, at(900 + 300 * nth)))
    assert state.job.attempt == 2


def test_where_part_of_a_gang_is_up_after_a_move_it_is_kept_again() -> None:
    state = moved()
    chief = replace(state.replicas[0], state=ReplicaState.RUNNING, ready_at=at(1000))
    kept = replace(state, replicas=(chief, *state.replicas[1:]))
    decision = refuse(kept, 1100)
    assert isinstance(decision, ContinueProvisioning)
    assert decision.zone_index == kept.job.placement.zone_index


def test_a_rerun_ends_the_search_and_keeps_the_vms_that_are_there() -> None:
    """Its VMs have not spoken in the new attempt yet, and are not given up for that."""
    crashed = a_state(job=a_job(plan=a_plan(zones=ZONES), placement=Placement(0, 5, since=at(60), next_at=at(5000))))
    rerun = RerunJob(Budget.RERUNS, Rule.CRASH, Reason.CRASH_SIGNAL, "")
    state = apply(crashed, evolve(crashed, rerun, at(100)))
    assert (state.job.placement.since, state.job.placement.next_at) == (None, None)
    for now in (101, 160, 220):
        decision = refuse(state, now)
        assert isinstance(decision, ContinueProvisioning)
        assert decision.zone_index == 0
        state = apply(state, evolve(state, decision, at(now)))


@pytest.mark.parametrize("kind", [CapacityErrorKind.DENIED, CapacityErrorKind.INTERNAL])
def test_what_is_no_want_of_room_is_not_waited_for(kind: CapacityErrorKind) -> None:
    assert isinstance(refuse(preparing(), 10, kind), FailJob | RerunJob)
