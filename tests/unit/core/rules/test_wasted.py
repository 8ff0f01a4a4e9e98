"""VMs in a row without ten useful minutes: pauses, other zones, and an end.

`wasted` counts such VMs of a replica. A startup timeout counts as three, a failed set-up as ten.
The second one is followed by a pause, each third one by the next zone, the thirtieth by the job's
end.

Decisions are written as the number of the rule, the action and the reason:
`4 replace_vm preemption`.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it. The generation of a VM tells it from earlier VMs of the same replica.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.support import jobs
from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import action_of, summarize
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost, ready
from trainmaster.core.actions import FailJob, ReplaceVm
from trainmaster.core.events import ExitCause, ReplicaExited, VmLost, VmReady
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Job, JobState, Placement, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import (
    RETRY_MAX,
    RETRY_MIN,
    USEFUL_LIFE_MIN,
    WASTED_MAX,
    WASTED_PER_ZONE,
)

PREPARING = a_job(JobState.PREPARING)
ONE_ZONE = a_job(JobState.PREPARING, a_plan(zones=("us-central1-a",)))


def nothing_up(job: Job = PREPARING) -> State:
    """Return a job whose replicas all wait for their VMs."""
    return a_state(
        *(
            a_replica(replica_id, ReplicaState.WAITING)
            for replica_id in (CHIEF, WORKER_0, WORKER_1)
        ),
        job=job,
    )


def worker(state: State) -> Replica:
    return next(replica for replica in state.replicas if replica.replica_id == WORKER_0)


def next_request_at(state: State) -> datetime | None:
    """Return when worker 0's VM is requested, if no other replica waits with it."""
    assert state.job.placement.next_at is None or state.job.placement.floor
    return max(filter(None, (state.job.placement.next_at, worker(state).next_at)), default=None)


def lose(state: State, now: datetime, cause: LossCause = LossCause.PREEMPTION) -> tuple[str, State]:
    """Lose worker 0's VM. Return the decision and the state after it."""
    replica = worker(state)
    event = lost(WORKER_0, cause, replica.incarnation, replica.vm_generation)
    return judge_and_apply(state, replace(event, at=now), now)


def judge_and_apply(
    state: State, event: VmLost | VmReady | ReplicaExited, now: datetime
) -> tuple[str, State]:
    """Judge an event of worker 0's current attempt. Return the decision and the state after it."""
    decision = judge(
        state, replace(event, subject=replace(event.subject, attempt=worker(state).attempt)), now
    )
    return summarize(decision), apply(state, evolve(state, decision, now))


def report(state: State, now: datetime) -> State:
    """Let the agent of worker 0's VM report it ready."""
    replica = worker(state)
    event = replace(
        ready(WORKER_0, incarnation=replica.incarnation, vm_generation=replica.vm_generation),
        at=now,
    )
    return judge_and_apply(state, event, now)[1]


def lose_after_report(state: State, now: datetime, age: timedelta) -> tuple[str, State]:
    """Let worker 0's VM report ready at `now`, and lose it at this age."""
    return lose(report(state, now), now + age)


def lose_all(state: State) -> tuple[list[str], list[timedelta], State]:
    """Lose each VM as soon as it may be requested, until the job ends.

    Return decisions, pauses and the last state.
    """
    decisions: list[str] = []
    pauses: list[timedelta] = []
    now = at(100)
    for _ in range(1000):
        decision, state = lose(state, now)
        decisions.append(decision)
        if state.job.state.is_terminal:
            return decisions, pauses, state
        next_at = next_request_at(state) or now
        pauses.append(max(next_at - now, timedelta()))
        now = max(now, next_at)
    raise AssertionError("the job does not end")


def test_first_early_loss_is_replaced_at_once() -> None:
    decision, state = lose(nothing_up(), at(100))
    assert decision == "4 replace_vm preemption"
    assert (worker(state).wasted, next_request_at(state)) == (1, None)


def test_second_early_loss_is_replaced_after_a_pause() -> None:
    _, state = lose(nothing_up(), at(100))
    decision, state = lose(state, at(110))
    assert decision == "4 replace_vm preemption"
    assert state.job.placement == Placement()
    assert worker(state).next_at == at(110) + RETRY_MIN
    assert (worker(state).vm_generation, worker(state).incarnation, worker(state).replaced) == (
        3,
        3,
        2,
    )


def test_pause_of_a_replica_that_is_judged_alone_writes_no_job() -> None:
    """No other replica waits with it."""
    state = a_state(a_replica(WORKER_0, ReplicaState.WAITING, wasted=3))
    decision = judge(state, lost(WORKER_0), at(120))
    assert action_of(decision, ReplaceVm).next_at == at(120) + RETRY_MIN * 2**2
    change = evolve(state, decision, at(120))
    assert (change.job, len(change.replicas)) == (None, 1)


def test_third_early_loss_in_a_zone_moves_what_has_not_reported_to_the_next_zone() -> None:
    _, state = lose(nothing_up(), at(100))
    _, state = lose(state, at(200))
    decision, state = lose(state, at(300))
    assert decision == "4 continue_provisioning preemption"
    assert state.job.zone == "us-central1-b"
    assert len({replica.vm_generation for replica in state.replicas}) == 1, "one insert per role"
    assert worker(state).wasted == 3
    assert {replica.wasted for replica in state.replicas} == {0, 3}


def test_third_early_loss_while_the_rest_of_the_gang_runs_reruns_the_job_in_the_next_zone() -> None:
    state = a_state(
        a_replica(
            WORKER_0,
            ReplicaState.REPLACING,
            incarnation=2,
            vm_generation=2,
            wasted=2,
        )
    )
    decision, state = lose(state, at(300))
    assert decision == "4 rerun_job preemption"
    assert (state.job.zone, state.job.attempt, state.job.budgets.reruns_used) == (
        "us-central1-b",
        2,
        0,
    )
    assert worker(state).wasted == 3


def test_losses_in_a_row_end_the_job_after_hours_with_the_cause() -> None:
    decisions, pauses, state = lose_all(nothing_up())
    assert len(decisions) == WASTED_MAX
    assert decisions[-1] == "4 fail_job internal_budget_spent"
    assert (
        state.job.error_message
        == "Internal error occurred for the current attempt: no VM of worker 0 in a row was of use"
        " for ten minutes; the VM of worker 0 was preempted"
    )
    assert sum(pauses, timedelta()) >= timedelta(hours=6)
    assert max(pauses) <= RETRY_MAX
    zones = sum(decision.startswith("4 continue") for decision in decisions)
    assert zones == WASTED_MAX // WASTED_PER_ZONE - 1


def test_losses_in_the_only_zone_also_end_the_job() -> None:
    decisions, _, state = lose_all(nothing_up(ONE_ZONE))
    assert (len(decisions), state.job.state, state.job.attempt) == (
        WASTED_MAX,
        JobState.FAILED,
        1,
    )


SOON = USEFUL_LIFE_MIN - timedelta(seconds=1)


def test_loss_of_a_vm_soon_after_its_report_is_an_early_loss() -> None:
    decision, state = lose_after_report(nothing_up(), at(100), SOON)
    assert (decision, worker(state).wasted) == ("4 replace_vm preemption", 1)
    decision, state = lose_after_report(state, at(1000), SOON)
    assert (decision, worker(state).wasted) == ("4 replace_vm preemption", 2)
    assert next_request_at(state) == at(1000) + SOON + RETRY_MIN


@pytest.mark.parametrize("losses", [1, WASTED_PER_ZONE - 1])
def test_loss_of_a_vm_that_lived_longer_ends_the_series(losses: int) -> None:
    state = nothing_up()
    for number in range(losses):
        _, state = lose(state, at(100 + 100 * number))
    assert worker(state).wasted == losses
    decision, state = lose_after_report(state, at(1000), USEFUL_LIFE_MIN)
    assert decision == "4 replace_vm preemption"
    assert worker(state).wasted == 0


def test_vms_that_go_soon_after_their_reports_do_not_cost_more_than_the_limit() -> None:
    state, now = nothing_up(), at(100)
    decisions: list[str] = []
    while len(decisions) <= WASTED_MAX and not state.job.state.is_terminal:
        decision, state = lose_after_report(state, now, timedelta(seconds=30))
        decisions.append(decision)
        now = max(now + timedelta(seconds=70), next_request_at(state) or now)
    assert len(decisions) == WASTED_MAX
    assert now - at(100) >= timedelta(hours=6)
    assert decisions[WASTED_PER_ZONE - 1] == "4 continue_provisioning preemption"


def test_third_loss_soon_after_a_report_reruns_a_running_job_in_the_next_zone() -> None:
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=2))
    decision, state = lose(state, at(30))
    assert (decision, state.job.zone) == ("4 rerun_job preemption", "us-central1-b")
    assert (worker(state).wasted, worker(state).vm_since) == (3, None)
    assert state.job.placement.next_at == at(30) + 2 * RETRY_MIN


def test_exit_while_a_young_vm_shuts_down_is_an_early_loss() -> None:
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=1))
    event = exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING, seconds=30)
    decision, state = judge_and_apply(state, event, at(31))
    assert (decision, worker(state).wasted) == ("4 replace_vm vm_stopping", 2)
    assert next_request_at(state) == at(31) + RETRY_MIN


def test_restart_in_the_same_vm_neither_ends_the_series_nor_makes_the_vm_younger() -> None:
    state = report(lose(nothing_up(), at(100))[1], at(200))
    replica = worker(state)
    failed = exited(
        WORKER_0,
        1,
        incarnation=replica.incarnation,
        vm_generation=replica.vm_generation,
        seconds=210,
    )
    _, state = judge_and_apply(state, failed, at(210))
    assert worker(state).wasted == 1
    state = report(state, at(220))
    assert worker(state).vm_since == at(200)
    assert worker(lose(state, at(200) + USEFUL_LIFE_MIN)[1]).wasted == 0
    assert worker(lose(state, at(200) + SOON)[1]).wasted == 2


def test_rerun_keeps_the_age_of_the_vm() -> None:
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=1))
    _, state = judge_and_apply(state, exited(WORKER_0, signal=6, seconds=20), at(20))
    assert (state.job.attempt, worker(state).vm_since, worker(state).wasted) == (2, at(0), 1)


@pytest.mark.parametrize(
    ("age", "losses", "pause"), [(SOON, 2, RETRY_MIN), (USEFUL_LIFE_MIN, 0, None)]
)
def test_early_loss_with_restart_job_on_worker_restart_reruns_the_job_after_a_pause(
    age: timedelta, losses: int, pause: timedelta | None
) -> None:
    job = a_job(plan=a_plan(restart_job_on_worker_restart=True))
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=1), job=job)
    decision, state = lose(state, at(0) + age)
    assert decision.startswith("4 rerun_job")
    assert worker(state).wasted == losses
    assert state.job.placement.next_at == (at(0) + age + pause if pause else None)


def test_rerun_by_an_early_loss_during_a_pause_keeps_the_pause() -> None:
    job = a_job(
        plan=a_plan(restart_job_on_worker_restart=True), placement=Placement(next_at=at(500))
    )
    state = lose(a_state(a_replica(WORKER_0, vm_since=at(0), wasted=1), job=job), at(30))[1]
    assert (state.job.attempt, state.job.placement.next_at) == (2, at(500))


@pytest.mark.parametrize(("age", "wasted"), [(SOON, 2), (USEFUL_LIFE_MIN, 0)])
@pytest.mark.parametrize("cause", [LossCause.AGENT_SILENT, LossCause.GONE, LossCause.PREEMPTION])
def test_any_end_of_a_vm_counts_by_the_age_of_the_vm(
    cause: LossCause, age: timedelta, wasted: int
) -> None:
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=1))
    assert worker(lose(state, at(0) + age, cause)[1]).wasted == wasted


def test_startup_timeout_counts_three_and_only_the_second_one_moves_the_gang() -> None:
    decision, state = lose(nothing_up(), at(1200), LossCause.STARTUP_TIMEOUT)
    assert (decision, worker(state).wasted) == ("4 replace_vm startup_timeout", 3)
    assert next_request_at(state) == at(1200) + 2 * RETRY_MIN
    decision, state = lose(state, at(3000), LossCause.STARTUP_TIMEOUT)
    assert (decision, worker(state).wasted) == ("4 continue_provisioning startup_timeout", 6)


def fail_setup(state: State, now: datetime) -> tuple[str, State]:
    """Let the set-up of worker 0's VM fail."""
    replica = worker(state)
    failed = exited(
        WORKER_0,
        cause=ExitCause.SETUP,
        tail="the registry answers 503",
        incarnation=replica.incarnation,
        vm_generation=replica.vm_generation,
    )
    return judge_and_apply(state, replace(failed, at=now), now)


def test_setup_has_three_tries_with_pauses_that_outlast_an_outage_of_an_hour() -> None:
    state, now, decisions = nothing_up(), at(100), []
    while not state.job.state.is_terminal:
        decision, state = fail_setup(state, now)
        decisions.append(decision)
        now = next_request_at(state) or now
    assert decisions == ["4 replace_vm setup_failed"] * 2 + ["4 fail_job internal_budget_spent"]
    assert now - at(100) > timedelta(hours=1)
    assert (
        state.job.error_message
        == "Internal error occurred for the current attempt: worker 0 could not be set up: the"
        " registry answers 503"
    )


def test_setups_that_fail_on_vms_that_lived_end_the_job_too() -> None:
    """What a program wrote cannot be saved at its end, whatever VM it ran on."""
    state = a_state(a_replica(WORKER_0, vm_since=at(0), wasted=20))
    assert fail_setup(state, at(36_000))[0] == "4 fail_job internal_budget_spent"


def test_longer_pause_of_a_gang_is_not_cut_short() -> None:
    members = jobs.a_state(
        a_replica(WORKER_0, vm_since=at(0), wasted=1),
        a_replica(WORKER_1, vm_since=at(0), wasted=9),
        job=jobs.a_job(plan=jobs.a_plan(zones=("us-central1-a",))),
    )
    paused = apply(members, evolve(members, judge(members, lost(WORKER_1), at(0)), at(0)))
    assert paused.job.placement.next_at == at(0) + RETRY_MAX
    loss = replace(lost(WORKER_0), at=at(10))
    again = apply(paused, evolve(paused, judge(paused, loss, at(10)), at(10)))
    assert again.job.placement.next_at == at(0) + RETRY_MAX
    assert [replica.next_at for replica in again.replicas] == [None, None, None]


def test_reboot_soon_after_the_start_replaces_the_vm_and_a_later_one_does_not() -> None:
    for age, expected in (
        (SOON, ("4 replace_vm vm_restarted", 2)),
        (USEFUL_LIFE_MIN, ("4 restart_replica vm_restarted", 1)),
    ):
        state = a_state(a_replica(WORKER_0, vm_since=at(-9000), ready_at=at(0), wasted=1))
        reboot = replace(exited(WORKER_0, cause=ExitCause.VM_RESTARTED), at=at(0) + age)
        decision, state = judge_and_apply(state, reboot, reboot.at)
        assert (decision, worker(state).wasted) == expected


def test_last_early_loss_ends_the_job_and_the_one_before_does_not() -> None:
    for losses, ends in ((WASTED_MAX - 2, False), (WASTED_MAX - 1, True)):
        replica = a_replica(WORKER_0, ReplicaState.WAITING, wasted=losses)
        decision = judge(a_state(replica, job=PREPARING), lost(WORKER_0), at(100))
        assert isinstance(decision.action, FailJob) is ends
