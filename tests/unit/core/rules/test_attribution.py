"""Attribution: whose fault an exit was, and what is refunded when a loss becomes known later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.actions import Budget, HoldReplica, ReplaceVm, RerunJob, RestartReplica
from shared.core.evolve import apply, evolve
from shared.core.model.exit_policy import Blame
from shared.core.model.job import Budgets, State
from shared.core.model.plan import TaskGroup
from shared.core.model.replica import LastExit, Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import DirectiveAction, LossCause
from shared.core.reconcile.desired import desired_vms
from shared.core.reporting.explain import next_steps
from shared.core.rules.judge import judge
from tests.support.decisions import action_of
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at, exited, lost

NOW = at(100)
EVALUATOR = ReplicaId(TaskType.EVALUATOR, 0)


def with_evaluator(*replicas: Replica) -> State:
    plan = a_plan()
    groups = (*plan.groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4"))
    return a_state(*replicas, job=a_job(plan=replace(plan, groups=groups)))


def replacing(replica_id: ReplicaId) -> Replica:
    return a_replica(replica_id, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(50))


def charged(replica_id: ReplicaId, seconds: float, blame: Blame) -> Replica:
    """Return a replica that runs again after a charged restart."""
    return a_replica(
        replica_id,
        incarnation=2,
        restarts_used=1,
        ready_at=at(seconds + 1),
        lost_at=at(seconds),
        charged_at=at(seconds),
        last_exit=LastExit(1, 1, None, "UnavailableError at ops.py:12 in execute", blame),
    )


def test_exit_during_an_evaluators_loss_is_charged() -> None:
    action = action_of(judge(with_evaluator(replacing(EVALUATOR)), exited(WORKER_0, 1), NOW), RestartReplica)
    assert action.charge is Budget.RESTARTS


def test_evaluators_exit_during_a_peers_loss_is_charged() -> None:
    action = action_of(judge(with_evaluator(replacing(WORKER_0)), exited(EVALUATOR, 1), NOW), RestartReplica)
    assert action.charge is Budget.RESTARTS


def test_workers_exit_during_a_peers_loss_is_free_in_a_job_with_an_evaluator() -> None:
    assert isinstance(judge(with_evaluator(replacing(WORKER_1)), exited(WORKER_0, 1), NOW).action, HoldReplica)


def test_held_replica_starts_while_only_an_evaluator_is_down() -> None:
    held = a_replica(CHIEF, ReplicaState.HELD, incarnation=2)
    state = with_evaluator(replacing(EVALUATOR), held)
    desired = {target.replica.replica_id: target.directive.action for target in desired_vms(state.job, state.replicas)}
    assert desired[CHIEF] is DirectiveAction.RUN
    assert "chief 0 waits no longer: it is being started." in next_steps(state.job, state.replicas)


@pytest.mark.parametrize("blame", [Blame.PEER, Blame.UNKNOWN])
def test_loss_that_becomes_known_late_refunds_the_restarts_of_its_peers(blame: Blame) -> None:
    state = a_state(charged(CHIEF, 90, blame), a_replica(WORKER_1, incarnation=2, forgiven_at=at(91), collateral=1))
    decision = judge(state, lost(WORKER_0), NOW)
    assert action_of(decision, ReplaceVm).refunded == ("1-chief-0",)
    assert "chief 0" in decision.text
    chief = next(replica for replica in evolve(state, decision, NOW).replicas if replica.replica_id == CHIEF)
    assert (chief.restarts_used, chief.collateral, chief.last_exit, chief.state) == (0, 1, None, ReplicaState.RUNNING)


@pytest.mark.parametrize(
    ("chief", "worker"),
    [
        (charged(CHIEF, 90, Blame.OWN), a_replica(WORKER_0)),
        (charged(CHIEF, -90, Blame.PEER), a_replica(WORKER_0, ready_at=at(-100))),
        (charged(CHIEF, 90, Blame.PEER), a_replica(WORKER_0, ready_at=at(95))),
        (a_replica(CHIEF, incarnation=2, lost_at=at(90), collateral=1), a_replica(WORKER_0)),
    ],
    ids=["its own bug", "too long ago", "before the lost replica was ready", "refunded before"],
)
def test_restart_that_a_loss_does_not_explain_stays_charged(chief: Replica, worker: Replica) -> None:
    assert action_of(judge(a_state(chief, worker), lost(WORKER_0), NOW), ReplaceVm).refunded == ()


def test_exit_of_a_peer_that_was_reported_lost_is_charged_and_refunds_the_reporter() -> None:
    action = action_of(judge(a_state(charged(CHIEF, 90, Blame.PEER)), exited(WORKER_0, signal=9), NOW), RestartReplica)
    assert (action.charge, action.refunded) == (Budget.RESTARTS, ("1-chief-0",))


def after_crash(signal: int = 6) -> State:
    """Worker 0 crashed and the whole job was rerun, on the same VMs."""
    before = a_state(*(a_replica(replica_id, ready_at=at(10)) for replica_id in (CHIEF, WORKER_0, WORKER_1)))
    decision = judge(before, exited(WORKER_0, signal=signal), NOW)
    assert isinstance(decision.action, RerunJob)
    state = apply(before, evolve(before, decision, NOW))
    assert state.job.budgets == Budgets(reruns_used=1)
    return state


def lose(state: State, replica_id: ReplicaId, seconds: float) -> tuple[str, State]:
    """Return the text of the decision about a lost VM, this long after the crash, and the state after it."""
    decision = judge(state, lost(replica_id, LossCause.GONE), at(100 + seconds))
    assert isinstance(decision.action, ReplaceVm)
    return decision.text, apply(state, evolve(state, decision, at(100 + seconds)))


def test_aborted_replica_is_blamed_on_no_one() -> None:
    last_rerun = after_crash().job.last_rerun
    assert last_rerun is not None
    assert last_rerun.blame is Blame.UNKNOWN


def test_rerun_that_a_later_loss_explains_is_refunded_once() -> None:
    """Runtimes that give up on their peers abort themselves, often before the loss is known."""
    text, after = lose(after_crash(), WORKER_1, 60)
    assert text.endswith("This explains the earlier rerun of the job: that rerun is refunded.")
    assert (after.job.budgets, after.job.attempt) == (Budgets(), 2)
    _, twice = lose(after, CHIEF, 61)
    assert twice.job.budgets == Budgets()


@pytest.mark.parametrize(("signal", "seconds"), [(11, 60), (6, 181)], ids=["segmentation fault", "too late"])
def test_rerun_that_a_loss_does_not_explain_stays_charged(signal: int, seconds: float) -> None:
    _, after = lose(after_crash(signal), WORKER_1, seconds)
    assert after.job.budgets == Budgets(reruns_used=1)


def test_loss_of_a_replica_that_was_ready_since_the_rerun_does_not_refund_it() -> None:
    state = after_crash()
    ready = tuple(replace(replica, ready_at=at(110)) for replica in state.replicas)
    _, after = lose(replace(state, replicas=ready), WORKER_1, 60)
    assert after.job.budgets == Budgets(reruns_used=1)


def test_loss_of_a_vm_created_after_the_rerun_does_not_refund_it() -> None:
    state = after_crash()
    new_vms = tuple(replace(replica, instance_id=None) for replica in state.replicas)
    decision = judge(replace(state, replicas=new_vms), lost(WORKER_1, LossCause.GONE), at(160))
    assert not action_of(decision, ReplaceVm).refunds_rerun


def test_rerun_keeps_its_vms_so_that_a_missing_one_counts_as_lost() -> None:
    state = after_crash()
    assert {replica.instance_id for replica in state.replicas} == {"1001"}
    assert not any(target.may_create for target in desired_vms(state.job, state.replicas))
