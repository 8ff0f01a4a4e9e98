"""Rule 10 for stalls: the program printed nothing for the job's stallTimeout, so the agent ended
it.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import action_of
from tests.support.jobs import WORKER_0, a_replica, at, exited
from trainmaster.core.actions import Budget, FailJob, RerunJob, RestartReplica
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.events import ExitCause, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.job import RERUNS_MAX, RESTARTS_MAX, Budgets, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.rules.judge import judge

NOW = at(1_000)


def a_stall(incarnation: int = 1) -> ReplicaExited:
    return exited(WORKER_0, signal=15, cause=ExitCause.STALLED, incarnation=incarnation)


def after_stalls(count: int, reruns_used: int = 0) -> State:
    """Worker 0 runs again after stalls in a row."""
    replica = a_replica(WORKER_0, incarnation=count + 1, restarts_used=count)
    return a_state(replica, job=a_job(budgets=Budgets(reruns_used=reruns_used)))


@pytest.mark.parametrize("stalls", range(RESTARTS_MAX))
def test_stalled_replica_restarts_and_pays_for_it(stalls: int) -> None:
    state = after_stalls(stalls)
    decision = judge(state, a_stall(stalls + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.RESTART, Reason.STALLED)
    assert f"restart {stalls + 1} of {RESTARTS_MAX}" in decision.text
    assert action_of(decision, RestartReplica).charge is Budget.RESTARTS
    (replica,) = evolve(state, decision, NOW).replicas
    assert (replica.state, replica.restarts_used) == (ReplicaState.RESTARTING, stalls + 1)


def test_stall_after_all_restarts_reruns_the_job_until_its_reruns_are_spent() -> None:
    decision = judge(after_stalls(RESTARTS_MAX), a_stall(RESTARTS_MAX + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.RESTART, Reason.RESTARTS_SPENT)
    rerun = action_of(decision, RerunJob)
    in_attempt_1 = f"1-{WORKER_0}"
    assert (rerun.charge, rerun.lost) == (Budget.RERUNS, in_attempt_1), (
        "its VM is replaced: the machine may be the cause"
    )
    spent = after_stalls(RESTARTS_MAX, RERUNS_MAX)
    failed = action_of(judge(spent, a_stall(RESTARTS_MAX + 1), NOW), FailJob)
    assert "printed nothing for the job's stallTimeout" in failed.message


@pytest.mark.parametrize("signal", [6, 15])
@pytest.mark.parametrize("action", [ExitAction.FAIL, ExitAction.RERUN])
def test_no_exit_policy_concerns_a_stall_whose_signal_the_agent_sent(
    signal: int, action: ExitAction
) -> None:
    policy = ExitPolicy(Preset.SERVICE, (ExitRule(first=0, last=255, action=action),))
    state = a_state(job=a_job(plan=a_plan(exit_policy=policy)))
    assert judge(state, replace(a_stall(), signal=signal), NOW).reason is Reason.STALLED
    with_status = replace(a_stall(), signal=None, exit_status=1)
    assert judge(state, with_status, NOW).reason is Reason.STALLED


def test_exit_0_of_a_program_that_was_ended_for_a_stall_is_not_a_completion() -> None:
    event = exited(WORKER_0, 0, cause=ExitCause.STALLED)
    assert judge(a_state(), event, NOW).reason is Reason.STALLED


def test_stall_with_restart_job_on_worker_restart_reruns_the_job() -> None:
    job = a_job(plan=a_plan(restart_job_on_worker_restart=True))
    assert action_of(judge(a_state(job=job), a_stall(), NOW), RerunJob).charge is Budget.RERUNS


def test_stall_with_disabled_retries_ends_the_job() -> None:
    job = a_job(plan=a_plan(disable_retries=True))
    assert judge(a_state(job=job), a_stall(), NOW).rule is Rule.RETRIES_DISABLED


def test_stall_of_an_older_incarnation_is_ignored() -> None:
    decision = judge(after_stalls(1), a_stall(1), NOW)
    assert decision.rule is Rule.STALE
