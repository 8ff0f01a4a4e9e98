"""Rule 14: a program that the agent ended because it printed nothing for the job's stallTimeout."""

from __future__ import annotations

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import action_of
from tests.support.jobs import WORKER_0, a_replica, at, exited
from trainmaster.core.actions import Budget, FailJob, RerunJob, RestartReplica
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import RERUNS_MAX, STALLS_MAX, Budgets, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.judge import judge

NOW = at(1_000)


def a_stall(incarnation: int = 1) -> ReplicaExited:
    return exited(WORKER_0, signal=15, cause=ExitCause.STALLED, incarnation=incarnation)


def after_stalls(count: int, reruns_used: int = 0) -> State:
    """Worker 0 runs again after stalls in a row."""
    replica = a_replica(WORKER_0, incarnation=count + 1, stalls=count)
    return a_state(replica, job=a_job(budgets=Budgets(reruns_used=reruns_used)))


@pytest.mark.parametrize("stalls", range(STALLS_MAX))
def test_stalled_replica_restarts_from_its_own_budget(stalls: int) -> None:
    state = after_stalls(stalls)
    decision = judge(state, a_stall(stalls + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.STALLED, Reason.STALLED)
    assert f"stall {stalls + 1} of {STALLS_MAX}" in decision.text
    action = action_of(decision, RestartReplica)
    assert (action.charge, action.is_stall) == (Budget.FREE, True)
    (replica,) = evolve(state, decision, NOW).replicas
    assert (replica.state, replica.restarts_used) == (ReplicaState.RESTARTING, 0)
    assert replica.stalls == stalls + 1


def test_fourth_stall_reruns_the_job_until_its_reruns_are_spent() -> None:
    decision = judge(after_stalls(STALLS_MAX), a_stall(STALLS_MAX + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.STALLED, Reason.STALLS_SPENT)
    rerun = action_of(decision, RerunJob)
    assert (rerun.charge, rerun.lost) == (Budget.RERUNS, f"1-{WORKER_0}"), (
        "the machine may be the cause"
    )
    spent = after_stalls(STALLS_MAX, RERUNS_MAX)
    failed = action_of(judge(spent, a_stall(STALLS_MAX + 1), NOW), FailJob)
    assert "printed nothing for the job's stallTimeout" in failed.message


def test_exit_0_of_a_program_that_was_ended_for_a_stall_is_not_a_completion() -> None:
    event = exited(WORKER_0, 0, cause=ExitCause.STALLED)
    assert judge(a_state(), event, NOW).rule is Rule.STALLED


def test_stall_with_restart_job_on_worker_restart_reruns_the_job() -> None:
    job = a_job(plan=a_plan(restart_job_on_worker_restart=True))
    assert action_of(judge(a_state(job=job), a_stall(), NOW), RerunJob).charge is Budget.RERUNS


def test_stall_with_disabled_retries_ends_the_job() -> None:
    job = a_job(plan=a_plan(disable_retries=True))
    assert judge(a_state(job=job), a_stall(), NOW).rule is Rule.RETRIES_DISABLED


def test_stall_of_an_older_incarnation_is_ignored() -> None:
    decision = judge(after_stalls(1), a_stall(1), NOW)
    assert decision.rule is Rule.STALE
