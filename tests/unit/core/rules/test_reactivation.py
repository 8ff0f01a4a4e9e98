"""Reactivation: completed replicas run again when the primary, which may wait for them, restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_charged_exit,
    a_job,
    a_lost_vm,
    a_plan,
    a_replica,
    a_state,
    an_incarnation,
    at,
    exited,
    lost,
)
from trainmaster.core.actions import HoldReplica, ReactivateReplica, ReplaceVm, RestartReplica
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import CompletionOutdated
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.plan import TaskGroup
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import LossCause
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.rules.explained_charge import explained_charges
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.reactivation import replicas_to_reactivate

NOW = at(1000)
RESTARTING = a_replica(CHIEF, ReplicaState.RESTARTING, incarnation=2, lost_at=at(500), ordered_at=at(500))
REPLACING = replace(RESTARTING, state=ReplicaState.REPLACING, vm_generation=2)
HELD = a_replica(CHIEF, ReplicaState.HELD, incarnation=2, ordered_at=at(500))
RESTARTED = replace(RESTARTING, state=ReplicaState.RUNNING, ready_at=at(510), started_at=at(510))
INDEPENDENT = a_job(plan=a_plan(independent=True))


def completed(replica_id: ReplicaId = WORKER_0, seconds: float = 400, **changes: object) -> Replica:
    return a_replica(replica_id, ReplicaState.COMPLETED, done_at=at(seconds), **{"ordered_at": at(0), **changes})


def outdated() -> CompletionOutdated:
    return CompletionOutdated(an_incarnation(WORKER_0), NOW)


def reactivated(state: State) -> list[ReplicaId]:
    return [replica.replica_id for replica in replicas_to_reactivate(state)]


def judge_completion(state: State) -> Decision:
    """Judge the outdated completion of worker 0, and see that the reconciler finds what the rule decides."""
    decision = judge(state, outdated(), NOW)
    assert isinstance(decision.action, ReactivateReplica) == bool(replicas_to_reactivate(state))
    return decision


@pytest.mark.parametrize("chief", [RESTARTING, REPLACING, HELD, RESTARTED], ids=lambda chief: chief.state)
def test_completed_replica_runs_again_for_free_when_the_primary_restarts(chief: Replica) -> None:
    state = a_state(chief, completed(restarts_used=2))
    decision = judge_completion(state)
    assert (decision.rule, decision.reason) == (Rule.REPLICA_DONE, Reason.PRIMARY_RESTARTED)
    assert "chief 0 starts incarnation 2" in decision.text
    change = evolve(state, decision, NOW)
    (worker,) = change.replicas
    assert (worker.state, worker.incarnation, worker.vm_generation) == (ReplicaState.WAITING, 2, 2)
    assert (worker.restarts_used, worker.replaced) == (2, 0)
    assert (worker.instance_id, worker.lost_at, worker.done_at) == (None, None, None)
    assert change.effects


def test_reactivated_replica_gets_a_vm_and_is_not_reactivated_again() -> None:
    state = a_state(RESTARTING, completed())
    after = apply(state, evolve(state, judge_completion(state), NOW))
    assert reactivated(after) == []
    desired = {target.replica.replica_id: target for target in desired_vms(after.job, after.replicas)}
    assert desired[WORKER_0].may_create
    assert vm_steps(after.job, (desired[WORKER_0],), ())


def test_all_cluster_members_are_reactivated_but_evaluators_are_not() -> None:
    groups = [TaskGroup(kind, 1, "n1-standard-4") for kind in (TaskType.CHIEF, TaskType.WORKER, TaskType.PS)]
    plan = a_plan(groups=(*groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")))
    others = [ReplicaId(kind, 0) for kind in (TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)]
    assert reactivated(a_state(RESTARTING, *map(completed, others), job=a_job(plan=plan))) == others[:2]


def test_worker_0_reactivates_others_if_it_is_the_primary() -> None:
    plan = a_plan(groups=(TaskGroup(TaskType.WORKER, 2, "n1-standard-4"),))
    state = a_state(replace(RESTARTING, replica_id=WORKER_0), completed(WORKER_1), job=a_job(plan=plan))
    assert reactivated(state) == [WORKER_1]


NOT_NEEDED = {
    "primary is in its first incarnation": a_state(completed()),
    "clocks of two functions differ": a_state(a_replica(CHIEF, ordered_at=at(401)), completed()),
    "only another worker restarted": a_state(replace(RESTARTING, replica_id=WORKER_1), completed()),
    "incarnation was ordered after the primary's loss": a_state(RESTARTED, completed(seconds=520, ordered_at=at(505))),
    "replica survived the loss for long": a_state(RESTARTED, completed(seconds=510 + 180)),
    "primary's exit was collateral": a_state(
        replace(HELD, state=ReplicaState.RUNNING, started_at=at(510)), completed(seconds=520)
    ),
    "replicas are independent": a_state(RESTARTING, completed(), job=INDEPENDENT),
    "replica runs": a_state(RESTARTING),
}


@pytest.mark.parametrize("state", NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_completed_replica_that_the_primary_does_not_need_stays_completed(state: State) -> None:
    assert judge_completion(state).reason is Reason.NOT_YET


def test_no_replica_is_reactivated_after_the_jobs_end() -> None:
    ended = a_state(RESTARTING, completed(), job=a_job(JobState.FAILED))
    assert judge_completion(ended).reason is Reason.JOB_ENDED


@pytest.mark.parametrize("chief", [RESTARTING, REPLACING, RESTARTED], ids=lambda chief: chief.state)
def test_completion_reported_after_the_primarys_failure_is_outdated(chief: Replica) -> None:
    assert judge_completion(a_state(chief, completed(seconds=510 + 179))).reason is Reason.PRIMARY_RESTARTED


def test_completion_of_a_replica_reported_ready_after_the_failure_is_outdated() -> None:
    assert reactivated(a_state(RESTARTED, completed(seconds=520, ready_at=at(505)))) == [WORKER_0]


def test_replica_that_ran_when_a_peers_end_stopped_the_primary_is_reactivated() -> None:
    """The primary's latest end with a cause of its own was before the replica was ordered."""
    chief = replace(RESTARTED, incarnation=4, lost_at=at(300))
    survivor = completed(seconds=511, ordered_at=at(310), started_at=at(350))
    assert reactivated(a_state(chief, survivor)) == [WORKER_0]


def test_replica_that_was_held_with_the_primary_and_started_with_it_stays_completed() -> None:
    chief = replace(RESTARTED, incarnation=4, lost_at=at(300))
    peer = completed(seconds=520, ordered_at=at(490), started_at=at(509))
    assert reactivated(a_state(chief, peer)) == []


@pytest.mark.parametrize(("seconds", "expected"), [(400, [WORKER_0]), (414, [WORKER_0]), (415, [])])
def test_completion_is_outdated_up_to_10_s_after_the_primary_of_a_rerun_is_ready(
    seconds: float, expected: list[ReplicaId]
) -> None:
    """The exit report of the attempt before may arrive late."""
    primary = a_replica(CHIEF, attempt=2, ordered_at=at(390), started_at=at(405))
    worker = completed(attempt=2, seconds=seconds)
    assert reactivated(a_state(primary, worker, a_replica(WORKER_1, attempt=2), job=a_job(attempt=2))) == expected


def test_outdated_completion_of_an_older_vm_incarnation_or_attempt_is_ignored() -> None:
    newer_vm = a_state(RESTARTING, completed(incarnation=2, vm_generation=2))
    assert judge(newer_vm, outdated(), NOW).reason is Reason.OLD_VM_GENERATION
    newer_incarnation = a_state(RESTARTING, completed(incarnation=2))
    assert judge(newer_incarnation, outdated(), NOW).reason is Reason.OLD_INCARNATION
    rerun = a_state(a_replica(CHIEF, attempt=2), job=a_job(attempt=2))
    assert judge(rerun, outdated(), NOW).reason is Reason.OLD_ATTEMPT


def test_reactivated_replica_does_not_make_the_primarys_next_failure_free() -> None:
    """Otherwise a primary that fails by itself would be held forever, free of charge, by peers with nothing to do."""
    state = a_state(RESTARTED, completed(seconds=520))
    state = apply(state, evolve(state, judge_completion(state), NOW))
    assert isinstance(judge(state, exited(CHIEF, 1, incarnation=2), NOW).action, RestartReplica)


def test_loss_of_a_reactivated_replica_before_it_is_ready_refunds_nothing() -> None:
    """The charged exit of the primary is the reason for the reactivation."""
    charged = replace(RESTARTING, restarts_used=1, lost_at=at(950), past=(a_charged_exit(950),))
    changes = {"incarnation": 2, "vm_generation": 2, "ready_at": at(10), "ordered_at": at(951)}
    state = a_state(charged, a_replica(WORKER_0, ReplicaState.WAITING, **changes))
    decision = judge(state, lost(WORKER_0, LossCause.PREEMPTION, 2, 2, seconds=999), NOW)
    assert isinstance(decision.action, ReplaceVm)
    assert not list(explained_charges(apply(state, evolve(state, decision, NOW))))


def test_exit_of_an_independent_replica_is_never_collateral() -> None:
    changes = {"incarnation": 2, "vm_generation": 2, "lost_at": at(990), "past": (a_lost_vm(990),)}
    down = a_replica(WORKER_1, ReplicaState.REPLACING, **changes)
    failure = exited(WORKER_0, 1, seconds=999)
    assert isinstance(judge(a_state(down), failure, NOW).action, HoldReplica)
    assert isinstance(judge(a_state(down, job=INDEPENDENT), failure, NOW).action, RestartReplica)
