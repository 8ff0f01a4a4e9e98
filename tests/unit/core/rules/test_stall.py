"""Rule 14: a program that the agent ended because it printed nothing for the job's stallTimeout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.decisions import action_of
from tests.support.jobs import CHIEF, WORKER_0, a_charged_exit, a_job, a_lost_vm, a_plan, a_replica, a_state, at, exited
from trainmaster.core.actions import Budget, FailJob, HoldReplica, RerunJob, RestartReplica
from trainmaster.core.decisions import Reason, Rule
from trainmaster.core.events import ChargeExplained, ExitCause, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import RERUNS_MAX, STALLS_MAX, Budgets, State
from trainmaster.core.model.replica import EndKind, PastIncarnation, ReplicaState
from trainmaster.core.rules.explained_charge import explained_charges
from trainmaster.core.rules.judge import judge

NOW = at(1_000)


def a_stall(incarnation: int = 1) -> ReplicaExited:
    return exited(WORKER_0, signal=15, cause=ExitCause.STALLED, incarnation=incarnation)


def after_stalls(count: int, reruns_used: int = 0) -> State:
    """Worker 0 runs again after stalls in a row."""
    past = tuple(
        PastIncarnation(number, EndKind.STALL, at(number), back_at=at(number + 1), is_charged=True)
        for number in range(1, count + 1)
    )
    return a_state(
        a_replica(WORKER_0, incarnation=count + 1, past=past), job=a_job(budgets=Budgets(reruns_used=reruns_used))
    )


@pytest.mark.parametrize("stalls", range(STALLS_MAX))
def test_stalled_replica_restarts_from_its_own_budget(stalls: int) -> None:
    state = after_stalls(stalls)
    decision = judge(state, a_stall(stalls + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.STALLED, Reason.STALLED)
    assert f"stall {stalls + 1} of {STALLS_MAX}" in decision.text
    action = action_of(decision, RestartReplica)
    assert (action.charge, action.ended.kind, action.ended.is_charged) == (Budget.FREE, EndKind.STALL, True)
    (replica,) = evolve(state, decision, NOW).replicas
    assert (replica.state, replica.restarts_used) == (ReplicaState.RESTARTING, 0)
    assert [ended.kind for ended in replica.past] == [EndKind.STALL] * (stalls + 1)


def test_fourth_stall_reruns_the_job_until_its_reruns_are_spent() -> None:
    decision = judge(after_stalls(STALLS_MAX), a_stall(STALLS_MAX + 1), NOW)
    assert (decision.rule, decision.reason) == (Rule.STALLED, Reason.STALLS_SPENT)
    assert action_of(decision, RerunJob).charge is Budget.RERUNS
    spent = after_stalls(STALLS_MAX, RERUNS_MAX)
    failed = action_of(judge(spent, a_stall(STALLS_MAX + 1), NOW), FailJob)
    assert "printed nothing for the job's stallTimeout" in failed.message


def test_stall_that_a_peer_explains_does_not_use_up_the_budget() -> None:
    """The peer's VM hung before, and its agent's silence was reported later."""
    peer = a_replica(CHIEF, ReplicaState.REPLACING, incarnation=2, past=(a_lost_vm(0.5),))
    state = after_stalls(1)
    state = a_state(peer, *(replica for replica in state.replicas if replica.replica_id == WORKER_0), job=state.job)
    (explained,) = explained_charges(state)
    assert explained == (state.find(1, WORKER_0), state.find(1, WORKER_0).past[0], peer)  # type: ignore[union-attr]
    event = ChargeExplained(state.job.job_id, 1, WORKER_0, 1, CHIEF, NOW)
    refunded = apply(state, evolve(state, judge(state, event, NOW), NOW))
    assert [replica.restarts_used for replica in refunded.replicas] == [0, 0, 0]
    assert f"stall 1 of {STALLS_MAX}" in judge(replace(refunded, replicas=refunded.replicas[1:]), a_stall(2), NOW).text


def test_other_exits_do_not_use_up_the_budget_of_stalls() -> None:
    state = a_state(a_replica(WORKER_0, incarnation=2, past=(a_charged_exit(50, back_at=at(60)),)))
    assert "stall 1 of" in judge(state, a_stall(2), NOW).text


def test_exit_0_of_a_program_that_was_ended_for_a_stall_is_not_a_completion() -> None:
    event = exited(WORKER_0, 0, cause=ExitCause.STALLED)
    assert judge(a_state(), event, NOW).rule is Rule.STALLED


def test_stall_while_a_peer_is_down_is_collateral() -> None:
    peer = a_replica(CHIEF, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50), past=(a_charged_exit(50),))
    assert action_of(judge(a_state(peer), a_stall(), NOW), HoldReplica).charged_to == peer.key


def test_exit_of_a_peer_after_the_stall_is_free() -> None:
    """Ending the stalled program breaks the connections of its peers, which then fail."""
    state = a_state()
    stalled = evolve(state, judge(state, a_stall(), at(100)), at(100)).replicas[0]
    decision = judge(a_state(stalled), exited(CHIEF, 1, seconds=101), at(102))
    assert action_of(decision, HoldReplica).charged_to == stalled.key


def test_stall_with_restart_job_on_worker_restart_reruns_the_job() -> None:
    job = a_job(plan=a_plan(restart_job_on_worker_restart=True))
    assert action_of(judge(a_state(job=job), a_stall(), NOW), RerunJob).charge is Budget.RERUNS


def test_stall_with_disabled_retries_ends_the_job() -> None:
    job = a_job(plan=a_plan(disable_retries=True))
    assert judge(a_state(job=job), a_stall(), NOW).rule is Rule.RETRIES_DISABLED


def test_stall_of_an_older_incarnation_is_ignored() -> None:
    decision = judge(after_stalls(1), a_stall(1), NOW)
    assert decision.rule is Rule.STALE


def test_refund_of_a_charged_reboot_gives_the_restart_back() -> None:
    """Only stalls have a budget of their own."""
    reboot = PastIncarnation(1, EndKind.REBOOT, at(60), is_charged=True)
    state = a_state(a_replica(WORKER_0, incarnation=2, restarts_used=1, past=(reboot,)))
    event = ChargeExplained(state.job.job_id, 1, WORKER_0, 1, CHIEF, NOW)
    (replica,) = evolve(state, judge(state, event, NOW), NOW).replicas
    assert (replica.restarts_used, replica.past[0].is_charged) == (0, False)
