"""Attribution: whose fault an exit was, and what is refunded when a loss becomes known later."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.decisions import action_of
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
    at,
    exited,
    lost,
)
from trainmaster.core.actions import Budget, HoldReplica, ReplaceVm, RerunJob, RestartReplica
from trainmaster.core.events import ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import Blame
from trainmaster.core.model.job import Budgets, Job, LastRerun, State
from trainmaster.core.model.plan import TaskGroup
from trainmaster.core.model.replica import PastIncarnation, Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm import DirectiveAction, LossCause
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.reporting.explain import next_steps
from trainmaster.core.rules.attribution import explains, explains_rerun, may_be_collateral
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import EARLY_NOTICE_MAX, LOSS_REPORT_DELAY_MAX

NOW = at(100)
EVALUATOR = ReplicaId(TaskType.EVALUATOR, 0)


def with_evaluator(*replicas: Replica) -> State:
    plan = a_plan()
    groups = (*plan.groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4"))
    return a_state(*replicas, job=a_job(plan=replace(plan, groups=groups)))


def replacing(replica_id: ReplicaId) -> Replica:
    changes = {"incarnation": 2, "vm_generation": 2, "lost_at": at(50), "past": (a_lost_vm(50),)}
    return a_replica(replica_id, ReplicaState.REPLACING, **changes)


@pytest.mark.parametrize(("ran_s", "expected"), [(60, HoldReplica), (10, RestartReplica), (None, RestartReplica)])
def test_exit_of_a_program_that_ran_during_a_loss_is_collateral_although_its_start_was_not_reported(
    ran_s: float | None, expected: type
) -> None:
    back = a_replica(WORKER_1, incarnation=2, lost_at=at(50), past=(a_lost_vm(50, back_at=at(55)),))
    not_reported = a_replica(WORKER_0, started_at=None, ordered_at=at(60))
    event = replace(exited(WORKER_0, 1, ran_s=ran_s), at=at(90))
    assert isinstance(judge(a_state(back, not_reported), event, NOW).action, expected)


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


PEER, UNKNOWN, OWN = Blame.PEER, Blame.UNKNOWN, Blame.OWN
NOTICE_S = EARLY_NOTICE_MAX.total_seconds()
DELAY_S = LOSS_REPORT_DELAY_MAX.total_seconds()


def is_explained(loss: PastIncarnation, exit_: PastIncarnation) -> bool:
    """Whether a loss of worker 0 explains an exit of worker 1."""
    return explains(a_replica(WORKER_0, past=(loss,)), loss, a_replica(WORKER_1), exit_)


@pytest.mark.parametrize(
    ("blame", "seconds", "expected"),
    [
        (PEER, 100 - DELAY_S, True),
        (PEER, 100 - DELAY_S - 1, False),
        (UNKNOWN, 100 - DELAY_S, True),
        (UNKNOWN, 100 - DELAY_S - 1, False),
        (OWN, 99, False),
        (OWN, 100, True),
    ],
)
def test_lost_vm_explains_exits_since_it_may_have_been_lost(blame: Blame, seconds: float, *, expected: bool) -> None:
    assert is_explained(a_lost_vm(100), a_charged_exit(seconds, blame=blame)) is expected


def test_vm_loss_explains_no_exit_before_the_lost_incarnation_started() -> None:
    loss = a_lost_vm(100, started_at=at(60))
    assert is_explained(loss, a_charged_exit(60))
    assert not is_explained(loss, a_charged_exit(59))


@pytest.mark.parametrize("loss", [a_lost_vm(100, back_at=at(130)), a_charged_exit(100, back_at=at(130))])
def test_loss_explains_no_exit_of_an_incarnation_that_started_after_the_peer_was_back(loss: PastIncarnation) -> None:
    assert is_explained(loss, a_charged_exit(140, started_at=at(129)))
    assert not is_explained(loss, a_charged_exit(140, started_at=at(131)))
    assert is_explained(replace(loss, back_at=None), a_charged_exit(140, started_at=at(131))), "it is still away"


@pytest.mark.parametrize("loss_blame", [OWN, PEER, UNKNOWN])
@pytest.mark.parametrize("blame", [PEER, UNKNOWN])
def test_of_two_exits_the_earlier_explains_the_later(loss_blame: Blame, blame: Blame) -> None:
    earlier, later = a_charged_exit(100, blame=loss_blame), a_charged_exit(101, blame=blame)
    assert is_explained(earlier, later)
    assert is_explained(later, earlier) is (blame is OWN and loss_blame is PEER)


def test_of_two_simultaneous_exits_one_explains_the_other() -> None:
    worker_0, worker_1 = a_replica(WORKER_0), a_replica(WORKER_1)
    same = a_charged_exit(100)
    assert explains(worker_0, same, worker_1, same) != explains(worker_1, same, worker_0, same)


@pytest.mark.parametrize(("seconds", "expected"), [(100 - NOTICE_S, True), (100 - NOTICE_S - 1, False)])
def test_failure_explains_lost_connections_that_were_noticed_before_it_ended(seconds: float, *, expected: bool) -> None:
    failure = a_charged_exit(100, blame=OWN)
    assert is_explained(failure, a_charged_exit(seconds, blame=PEER)) is expected
    assert not is_explained(failure, a_charged_exit(seconds, blame=UNKNOWN))
    assert not is_explained(a_charged_exit(100, blame=UNKNOWN), a_charged_exit(seconds, blame=PEER))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (a_charged_exit(90, blame=OWN, signature="KeyError at a.py:1 in f"), True),
        (a_charged_exit(90, blame=OWN), True),
        (a_charged_exit(90, blame=UNKNOWN), True),
        (a_charged_exit(90, blame=OWN, signature="ValueError at a.py:1 in f"), False),
        (a_charged_exit(90, blame=PEER), False),
    ],
    ids=["another error", "a signal", "no traceback", "the same error", "a peer that reported this one"],
)
def test_exit_with_its_own_error_is_explained_by_another_failure(loss: PastIncarnation, *, expected: bool) -> None:
    exit_ = a_charged_exit(100, blame=OWN, signature="ValueError at a.py:1 in f")
    assert is_explained(loss, exit_) is expected


def test_refunded_exit_explains_nothing() -> None:
    assert not is_explained(a_charged_exit(90, is_charged=False), a_charged_exit(100))


def test_lost_vm_is_named_as_the_cause_before_a_failure() -> None:
    down = a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(90), past=(a_charged_exit(90),))
    action = judge(a_state(down, replacing(WORKER_1)), exited(CHIEF, 1), NOW).action
    assert isinstance(action, HoldReplica)
    assert action.charged_to == "1-worker-1"


def after_crash(signal: int = 6, judged_late_s: float = 0.0) -> State:
    """Worker 0 crashed and the whole job was rerun, on the same VMs."""
    judged_at = NOW + timedelta(seconds=judged_late_s)
    before = a_state(*(a_replica(replica_id, ready_at=at(10)) for replica_id in (CHIEF, WORKER_0, WORKER_1)))
    decision = judge(before, exited(WORKER_0, signal=signal), judged_at)
    assert isinstance(decision.action, RerunJob)
    state = apply(before, evolve(before, decision, judged_at))
    assert state.job.budgets == Budgets(reruns_used=1)
    return state


def lose(state: State, replica_id: ReplicaId, seconds: float, judged_late_s: float = 0.0) -> tuple[str, State]:
    """Return the text of the decision about a VM that is lost this long after the crash, and the state after it."""
    judged_at = at(100 + seconds + judged_late_s)
    decision = judge(state, lost(replica_id, LossCause.GONE, seconds=100 + seconds), judged_at)
    assert isinstance(decision.action, ReplaceVm)
    return decision.text, apply(state, evolve(state, decision, judged_at))


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


@pytest.mark.parametrize(("crash_late_s", "seconds", "loss_late_s", "reruns_used"), [(0, 60, 600, 0), (400, 181, 0, 1)])
def test_refund_of_a_rerun_does_not_depend_on_when_its_events_are_judged(
    crash_late_s: float, seconds: float, loss_late_s: float, reruns_used: int
) -> None:
    """A backlog delays either of them for minutes."""
    _, after = lose(after_crash(judged_late_s=crash_late_s), WORKER_1, seconds, loss_late_s)
    assert after.job.budgets == Budgets(reruns_used=reruns_used)


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


def test_exit_at_the_start_of_the_peers_next_incarnation_is_explained() -> None:
    """Both programs may have run at that moment."""
    back = replace(a_lost_vm(50), back_at=at(60))
    ended = replace(a_charged_exit(90), started_at=at(60), blame=Blame.PEER)
    assert explains(a_replica(WORKER_1), back, a_replica(WORKER_0), ended)
    assert not explains(a_replica(WORKER_1), back, a_replica(WORKER_0), replace(ended, started_at=at(60.001)))


def aborted(replica_id: ReplicaId) -> ReplicaExited:
    return exited(replica_id, signal=6)


@pytest.mark.parametrize(("workers", "expected"), [(0, False), (1, True), (2, True)])
def test_only_an_exit_of_a_replica_with_a_peer_may_be_collateral(workers: int, *, expected: bool) -> None:
    assert may_be_collateral(a_job(plan=a_plan(workers)), aborted(CHIEF)) is expected


def test_evaluator_is_not_a_peer() -> None:
    plan = a_plan(0)
    job = a_job(plan=replace(plan, groups=(*plan.groups, TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4"))))
    assert not may_be_collateral(job, aborted(CHIEF))
    assert not may_be_collateral(a_job(plan=a_plan(2)), aborted(EVALUATOR))
    assert not may_be_collateral(a_job(plan=a_plan(2, independent=True)), aborted(CHIEF))


def rerun_job(**plan: object) -> Job:
    return a_job(plan=a_plan(**plan), last_rerun=LastRerun(at(0), Blame.PEER))  # type: ignore[arg-type]


def silent(replica_id: ReplicaId) -> Replica:
    """A replica whose VM had reported before the rerun, and has not reported since."""
    return a_replica(replica_id, ReplicaState.WAITING, instance_id="1001", ready_at=None)


def test_rerun_is_explained_by_a_loss_within_the_delay_of_its_report() -> None:
    assert explains_rerun(rerun_job(), silent(WORKER_0), at(0) + LOSS_REPORT_DELAY_MAX)
    assert not explains_rerun(rerun_job(), silent(WORKER_0), at(0.001) + LOSS_REPORT_DELAY_MAX)


def test_rerun_is_explained_neither_in_an_independent_job_nor_by_an_evaluator() -> None:
    assert not explains_rerun(rerun_job(independent=True), silent(WORKER_0), at(1))
    assert not explains_rerun(rerun_job(), silent(EVALUATOR), at(1))
