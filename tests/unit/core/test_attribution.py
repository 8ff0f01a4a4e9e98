"""Whose fault it was, where it is not what it seems: evaluators, reruns for a loss known later, VMs that reboot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.decisions import (
    Budget,
    FailJob,
    HoldReplica,
    MarkReady,
    Reason,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    Rule,
)
from shared.core.events import ExitCause
from shared.core.evolve import apply, evolve
from shared.core.model.exit_policy import Blame
from shared.core.model.job import Budgets, State
from shared.core.model.plan import TaskGroup
from shared.core.model.replica import LastExit, Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import DirectiveAction, LossCause
from shared.core.reconcile.desired import desired_vms
from shared.core.reporting.explain import what_comes_next
from shared.core.rules.judge import judge
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at, exited, lost

NOW = at(100)
EVALUATOR = ReplicaId(TaskType.EVALUATOR, 0)


def with_evaluator(*replicas: Replica) -> State:
    plan = a_plan()
    groups = (*plan.groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4"))
    return a_state(*replicas, job=a_job(plan=replace(plan, groups=groups)))


def replaced(replica_id: ReplicaId) -> Replica:
    return a_replica(replica_id, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(50))


def test_the_loss_of_an_evaluator_excuses_nobody() -> None:
    decision = judge(with_evaluator(replaced(EVALUATOR)), exited(WORKER_0, 1), NOW)
    assert isinstance(decision, RestartReplica)
    assert decision.charge is Budget.RESTARTS


def test_an_evaluator_does_not_die_of_a_peers_loss() -> None:
    decision = judge(with_evaluator(replaced(WORKER_0)), exited(EVALUATOR, 1), NOW)
    assert isinstance(decision, RestartReplica)
    assert decision.charge is Budget.RESTARTS


def test_nobody_waits_for_an_evaluator() -> None:
    held = a_replica(CHIEF, ReplicaState.HELD, incarnation=2)
    state = with_evaluator(replaced(EVALUATOR), held)
    actions = {want.replica.replica_id: want.directive.action for want in desired_vms(state.job, state.replicas)}
    assert actions[CHIEF] is DirectiveAction.RUN
    assert "chief 0 waits no longer: it is being started." in what_comes_next(state.job, state.replicas)


def crashed(signal: int = 6) -> State:
    """Worker 0 aborts itself: the whole job is rerun. Its peers' VMs are there."""
    before = a_state(*(a_replica(replica_id, ready_at=at(10)) for replica_id in (CHIEF, WORKER_0, WORKER_1)))
    decision = judge(before, exited(WORKER_0, signal=signal), NOW)
    assert isinstance(decision, RerunJob)
    state = apply(before, evolve(before, decision, NOW))
    assert state.job.budgets == Budgets(reruns_used=1)
    return state


def lose(state: State, replica_id: ReplicaId, seconds: float) -> tuple[ReplaceVm, State]:
    decision = judge(state, lost(replica_id, LossCause.GONE), at(100 + seconds))
    assert isinstance(decision, ReplaceVm)
    return decision, apply(state, evolve(state, decision, at(100 + seconds)))


def test_a_rerun_that_a_loss_explains_is_given_back() -> None:
    """Runtimes that give up on their peers abort themselves, often before anybody knows of the loss."""
    decision, after = lose(crashed(), WORKER_1, 60)
    assert decision.text.endswith("It explains why the job was rerun: that rerun is given back.")
    assert (after.job.budgets, after.job.attempt) == (Budgets(), 2)
    _, twice = lose(after, CHIEF, 61)
    assert twice.job.budgets == Budgets(), "once"


@pytest.mark.parametrize(
    ("signal", "seconds"), [(11, 60), (6, 181)], ids=["a segmentation fault tells of nobody else", "long after"]
)
def test_a_rerun_that_a_loss_does_not_explain_stays_charged(signal: int, seconds: float) -> None:
    _, after = lose(crashed(signal), WORKER_1, seconds)
    assert after.job.budgets == Budgets(reruns_used=1)


def test_who_spoke_since_the_rerun_was_not_lost_before_it() -> None:
    state = crashed()
    up = tuple(replace(each, ready_at=at(110)) for each in state.replicas)
    _, after = lose(replace(state, replicas=up), WORKER_1, 60)
    assert after.job.budgets == Budgets(reruns_used=1)


def test_a_new_vm_that_is_lost_before_it_spoke_explains_no_rerun() -> None:
    """It did not exist when the job was rerun."""
    state = crashed()
    fresh = tuple(replace(each, instance_id=None) for each in state.replicas)
    decision = judge(replace(state, replicas=fresh), lost(WORKER_1, LossCause.GONE), at(160))
    assert isinstance(decision, ReplaceVm)
    assert not decision.refunds_rerun


def test_a_rerun_in_place_knows_its_vms_so_that_one_that_is_gone_is_lost() -> None:
    state = crashed()
    assert {each.instance_id for each in state.replicas} == {"1001"}
    assert not any(want.may_create for want in desired_vms(state.job, state.replicas))


def rebooted(state: State, incarnation: int, when: float) -> State:
    decision = judge(state, exited(WORKER_0, cause=ExitCause.VM_RESTARTED, incarnation=incarnation), at(when))
    assert isinstance(decision, RestartReplica), decision
    return apply(state, evolve(state, decision, at(when)))


def restarts(state: State) -> int:
    return next(each.restarts_used for each in state.replicas if each.replica_id == WORKER_0)


def test_what_takes_its_vm_down_again_and_again_is_charged_and_ends() -> None:
    state, incarnation = rebooted(a_state(), 1, 100), 2
    assert restarts(state) == 0, "the first time is bad luck"
    for nth in range(1, 6):
        state, incarnation = rebooted(state, incarnation, 100 + 60 * nth), incarnation + 1
        assert restarts(state) == nth
    last = exited(WORKER_0, cause=ExitCause.VM_RESTARTED, incarnation=incarnation)
    assert isinstance(judge(state, last, at(500)), RerunJob)
    spent = replace(state, job=replace(state.job, budgets=Budgets(reruns_used=3)))
    decision = judge(spent, last, at(500))
    assert isinstance(decision, FailJob)
    assert decision.message == "The replica worker 0 was cut off by restarts of its VM."


def test_a_vm_that_restarts_now_and_then_costs_nothing() -> None:
    state = rebooted(rebooted(a_state(), 1, 100), 2, 100 + 3600)
    assert restarts(state) == 0


def test_of_two_that_were_charged_the_one_that_is_lost_explains_the_other() -> None:
    """A hold is as free as ever for who is in the cluster."""
    assert isinstance(judge(with_evaluator(replaced(WORKER_1)), exited(WORKER_0, 1), NOW), HoldReplica)
    assert crashed().job.last_rerun is not None
    assert crashed().job.last_rerun.blame is Blame.UNKNOWN  # type: ignore[union-attr]


def test_silence_is_counted_until_the_replica_speaks() -> None:
    find_startup_timeouts = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
    once = after(find_startup_timeouts, ReplaceVm("1-worker-0", Rule.VM_LOST, Reason.STARTUP_TIMEOUT, ""))
    assert once.startup_timeouts == 1
    again = a_state(once)
    assert after(again, ReplaceVm("1-worker-0", Rule.VM_LOST, Reason.PREEMPTION, "")).startup_timeouts == 1, (
        "still unheard of"
    )
    assert after(again, MarkReady("1-worker-0", "1", Rule.LIFECYCLE, Reason.READY, "")).startup_timeouts == 0
    exit_heard = RestartReplica(
        "1-worker-0", LastExit(3, 1, None, None), Budget.RESTARTS, Rule.RESTART, Reason.READY, ""
    )
    assert after(again, exit_heard).startup_timeouts == 0


def after(state: State, decision: ReplaceVm | MarkReady | RestartReplica) -> Replica:
    return evolve(state, decision, NOW).replicas[0]
