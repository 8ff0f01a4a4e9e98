"""Who has exited 0 is called back when the primary, which may wait for it, begins another incarnation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.decisions import Decision, HoldReplica, ReactivateReplica, Reason, ReplaceVm, RestartReplica, Rule
from shared.core.events import CompletionOutdated
from shared.core.evolve import apply, evolve
from shared.core.model.exit_policy import Blame
from shared.core.model.job import JobState, State
from shared.core.model.plan import TaskGroup
from shared.core.model.replica import LastExit, Replica, ReplicaState
from shared.core.model.replica_id import ReplicaId, TaskType
from shared.core.model.vm import LossCause
from shared.core.reconcile.desired import desired_vms
from shared.core.reconcile.plan import vm_steps
from shared.core.rules.judge import judge
from shared.core.rules.reactivation import replicas_to_reactivate
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    an_incarnation,
    at,
    exited,
    lost,
)

NOW = at(1000)
RESTARTED = a_replica(CHIEF, ReplicaState.RESTARTING, incarnation=2, lost_at=at(500), ordered_at=at(500))
REPLACED = replace(RESTARTED, state=ReplicaState.REPLACING, vm_generation=2)
HELD = a_replica(CHIEF, ReplicaState.HELD, incarnation=2, forgiven_at=at(500), ordered_at=at(500))
UNEXPLAINED = LastExit(1, 1, None, None, Blame.UNKNOWN)
UP = replace(RESTARTED, state=ReplicaState.RUNNING, ready_at=at(510))


def done(replica_id: ReplicaId = WORKER_0, when: float = 400, **changes: object) -> Replica:
    return a_replica(replica_id, ReplicaState.COMPLETED, done_at=at(when), **{"ordered_at": at(0), **changes})


def outdated(replica_id: ReplicaId = WORKER_0) -> CompletionOutdated:
    return CompletionOutdated(an_incarnation(replica_id), NOW)


def say(state: State, event: CompletionOutdated) -> Decision:
    decision = judge(state, event, NOW)
    assert isinstance(decision, ReactivateReplica) == bool(replicas_to_reactivate(state)), (
        "what is found is what is judged"
    )
    return decision


@pytest.mark.parametrize("chief", [RESTARTED, REPLACED, HELD, UP], ids=lambda chief: chief.state)
def test_who_was_done_before_the_primarys_life_gets_another_vm_and_life_at_no_charge(chief: Replica) -> None:
    state = a_state(chief, done(restarts_used=2))
    decision = say(state, outdated())
    assert (decision.rule, decision.reason) == (Rule.REPLICA_DONE, Reason.PRIMARY_RESTARTED)
    assert "chief 0 begins incarnation 2" in decision.text
    change = evolve(state, decision, NOW)
    (back,) = change.replicas
    assert (back.state, back.incarnation, back.vm_generation, back.instance_id) == (ReplicaState.WAITING, 2, 2, None)
    assert (back.restarts_used, back.replaced, back.lost_at, back.done_at) == (2, 0, None, None)
    assert change.provision
    after = apply(state, change)
    assert replicas_to_reactivate(after) == ()
    wants = {want.replica.replica_id: want for want in desired_vms(after.job, after.replicas)}
    assert wants[WORKER_0].may_create
    assert vm_steps(after.job, (wants[WORKER_0],), ()), "its VM is made"


def test_all_that_were_done_are_called_parameter_servers_too_and_no_evaluator() -> None:
    groups = [TaskGroup(kind, 1, "n1-standard-4") for kind in (TaskType.CHIEF, TaskType.WORKER, TaskType.PS)]
    plan = a_plan(groups=(*groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")))
    others = [ReplicaId(kind, 0) for kind in (TaskType.WORKER, TaskType.PS, TaskType.EVALUATOR)]
    state = a_state(RESTARTED, *map(done, others), job=a_job(plan=plan))
    assert [each.replica_id for each in replicas_to_reactivate(state)] == others[:2]


def test_the_primary_may_be_worker_0() -> None:
    plan = a_plan(groups=(TaskGroup(TaskType.WORKER, 2, "n1-standard-4"),))
    state = a_state(replace(RESTARTED, replica_id=WORKER_0), done(WORKER_1), job=a_job(plan=plan))
    assert [each.replica_id for each in replicas_to_reactivate(state)] == [WORKER_1]


NOT_NEEDED = {
    "the primary is in its first incarnation": a_state(done()),
    "the clocks of two functions differ": a_state(a_replica(CHIEF, ordered_at=at(401)), done()),
    "only another worker restarted": a_state(replace(RESTARTED, replica_id=WORKER_1), done()),
    "it was done in a incarnation that was ordered after the loss": a_state(UP, done(when=520, ordered_at=at(505))),
    "it outlived the loss, and ran on for long": a_state(UP, done(when=510 + 180)),
    "it was done beside a primary that had died of a peer": a_state(
        replace(HELD, state=ReplicaState.RUNNING, ready_at=at(510)), done(when=520)
    ),
    "replicas are independent": a_state(RESTARTED, done(), job=a_job(plan=a_plan(independent=True))),
    "it runs": a_state(RESTARTED),
}


@pytest.mark.parametrize("state", NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_nobody_is_called_without_need(state: State) -> None:
    assert say(state, outdated()).reason is Reason.NOTHING_TO_DO


def test_nobody_is_called_after_the_end() -> None:
    assert say(a_state(RESTARTED, done(), job=a_job(JobState.FAILED)), outdated()).reason is Reason.JOB_ENDED


@pytest.mark.parametrize("chief", [RESTARTED, REPLACED, UP], ids=lambda chief: chief.state)
def test_an_exit_0_that_is_told_after_the_primarys_is_as_outdated_as_one_before(chief: Replica) -> None:
    assert say(a_state(chief, done(when=510 + 179)), outdated()).reason is Reason.PRIMARY_RESTARTED


def test_so_is_one_that_was_told_to_be_up_only_after_the_primarys_loss() -> None:
    assert [each.replica_id for each in replicas_to_reactivate(a_state(UP, done(when=520, ready_at=at(505))))] == [
        WORKER_0
    ]


def test_who_was_done_beside_the_last_process_of_the_attempt_before_is_called() -> None:
    rerun = a_replica(CHIEF, attempt=2, ordered_at=at(390), ready_at=at(405))
    state = a_state(rerun, done(attempt=2), a_replica(WORKER_1, attempt=2), job=a_job(attempt=2))
    assert [each.replica_id for each in replicas_to_reactivate(state)] == [WORKER_0]
    told_late = a_state(rerun, done(attempt=2, when=414), a_replica(WORKER_1, attempt=2), job=a_job(attempt=2))
    assert [each.replica_id for each in replicas_to_reactivate(told_late)] == [WORKER_0]
    beside = a_state(rerun, done(attempt=2, when=415), a_replica(WORKER_1, attempt=2), job=a_job(attempt=2))
    assert replicas_to_reactivate(beside) == ()


def test_the_call_of_an_older_life_changes_nothing() -> None:
    assert (
        judge(a_state(RESTARTED, done(incarnation=2, vm_generation=2)), outdated(), NOW).reason
        is Reason.OLD_VM_GENERATION
    )
    assert judge(a_state(RESTARTED, done(incarnation=2)), outdated(), NOW).reason is Reason.OLD_INCARNATION
    rerun = a_state(a_replica(CHIEF, attempt=2), job=a_job(attempt=2))
    assert judge(rerun, outdated(), NOW).reason is Reason.OLD_ATTEMPT


def test_who_is_called_back_is_nobodys_excuse() -> None:
    """Else a primary that fails by itself would be held for ever at no charge, by peers that have nothing to do."""
    state = a_state(UP, done(when=520))
    state = apply(state, evolve(state, say(state, outdated()), NOW))
    assert isinstance(judge(state, exited(CHIEF, 1, incarnation=2), NOW), RestartReplica)


def test_a_loss_before_it_is_up_again_gives_nothing_back() -> None:
    """What its peer was charged is what it was called back for."""
    charged = replace(RESTARTED, restarts_used=1, charged_at=at(950), lost_at=at(950), last_exit=UNEXPLAINED)
    waiting = a_replica(WORKER_0, ReplicaState.WAITING, incarnation=2, vm_generation=2, ready_at=at(10))
    decision = judge(a_state(charged, waiting), lost(WORKER_0, LossCause.PREEMPTION, 2, 2), NOW)
    assert isinstance(decision, ReplaceVm)
    assert decision.refunded == ()


def test_where_replicas_are_independent_no_exit_is_a_peers_fault() -> None:
    down = a_replica(WORKER_1, ReplicaState.REPLACING, incarnation=2, vm_generation=2, lost_at=at(990))
    assert isinstance(judge(a_state(down), exited(WORKER_0, 1), NOW), HoldReplica)
    alone = a_state(down, job=a_job(plan=a_plan(independent=True)))
    decision = judge(alone, exited(WORKER_0, 1), NOW)
    assert isinstance(decision, RestartReplica)
    died = a_replica(WORKER_1, incarnation=2, restarts_used=1, charged_at=at(990), last_exit=UNEXPLAINED)
    refund = judge(a_state(died), lost(WORKER_0), NOW)
    kept = judge(a_state(died, job=a_job(plan=a_plan(independent=True))), lost(WORKER_0), NOW)
    assert isinstance(refund, ReplaceVm)
    assert isinstance(kept, ReplaceVm)
    assert (refund.refunded, kept.refunded) == (("1-worker-1",), ())
