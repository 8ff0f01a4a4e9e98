"""Rule 7: members of a synchronous job stop and start as a whole.

A round is one common run of all members. The first end of a member ends it: then the next round is
held until all members are ready, and a verdict on the ends decides what follows. A decision is
written as the number of its rule, its action and its reason.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.decisions import summarize
from tests.support.held_rounds import (
    BUG,
    NOW,
    PEER_LOSS,
    after,
    held,
    of_ready,
    running,
)
from tests.support.jobs import (
    CHIEF,
    START,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    exited,
    lost,
    ready,
)
from trainmaster.core.decisions import Reason
from trainmaster.core.events import Event, ExitCause, MemberMissing
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.floor import NO_VM
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.members import is_ready
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules.judge import judge

# Which jobs run in rounds


SLICE = TaskGroup(
    TaskType.CHIEF, 1, machine_type="", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4)
)
SERVER = TaskGroup(TaskType.PS, 1, "n1-standard-4")
EVALUATOR = TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (a_plan(workers=1), True),
        (a_plan(workers=0), False),
        (a_plan(groups=(SLICE,)), True),
        (a_plan(groups=(*a_plan(workers=0).groups, EVALUATOR)), False),
        (a_plan(groups=(*a_plan(workers=2).groups, SERVER)), False),
        (a_plan(workers=2, independent=True), False),
    ],
    ids=["worker", "alone", "slice of hosts", "evaluator", "parameter server", "independent"],
)
def test_job_is_synchronous_if_its_cluster_has_several_machines_that_depend_on_each_other(
    plan: object, *, expected: bool
) -> None:
    assert plan.is_synchronous is expected  # type: ignore[attr-defined]


# The end of a round


def test_first_failure_holds_the_next_round_and_later_ones_change_nothing() -> None:
    state = a_state()
    decision = judge(state, exited(WORKER_1, 1, error=BUG), NOW)
    assert summarize(decision) == "7 stop_round member_failed"
    change = evolve(state, decision, NOW)
    assert change.replicas == (), "the exits of 1,000 members write one document"
    stopped = apply(state, change)
    assert stopped.job.round == Round(2, is_held=True, ordered_at=NOW, stopped_by=WORKER_1)
    late = judge(stopped, exited(CHIEF, 1, error=PEER_LOSS), NOW)
    assert late.is_provisional


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (exited(WORKER_0, signal=6), "7 stop_round member_failed"),
        (exited(WORKER_0, 137, out_of_memory=True), "7 stop_round member_failed"),
        (exited(WORKER_0, signal=15, cause=ExitCause.STALLED), "7 stop_round member_failed"),
        (exited(WORKER_0, cause=ExitCause.VM_RESTARTED), "7 stop_round member_failed"),
        (exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING), "4 stop_round vm_stopping"),
        (lost(WORKER_0), "4 stop_round preemption"),
        (lost(WORKER_0, LossCause.STARTUP_TIMEOUT), "1 ignore nothing_to_do"),
        (lost(WORKER_0, LossCause.AGENT_SILENT), "4 stop_round agent_silent"),
        (exited(WORKER_0, 0), "3 record_completion exited_zero"),
        (exited(WORKER_0, 1, cause=ExitCause.INSTALL), "8 fail_job install_failed"),
        (
            exited(WORKER_0, 1, error=replace(BUG, type="ImportError"), ran_s=599),
            "8 fail_job install_failed",
        ),
        (
            exited(WORKER_0, 1, error=replace(BUG, type="ImportError"), ran_s=600),
            "7 stop_round member_failed",
        ),
        (exited(WORKER_0, cause=ExitCause.SETUP), "4 stop_round setup_failed"),
        (exited(WORKER_0, cause=ExitCause.UNFIT), "4 stop_round unfit"),
    ],
)
def test_running_round_ends_with_the_first_failure_of_a_member(event: Event, expected: str) -> None:
    assert summarize(judge(a_state(), event, NOW)) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lost(WORKER_0), "4 replace_vm preemption"),
        (exited(WORKER_0, cause=ExitCause.SETUP, incarnation=2), "4 replace_vm setup_failed"),
        (exited(WORKER_0, cause=ExitCause.UNFIT, incarnation=2), "4 replace_vm unfit"),
        (exited(WORKER_0, 1, cause=ExitCause.INSTALL, incarnation=2), "8 fail_job install_failed"),
        (exited(WORKER_0, 1, incarnation=2), "1 ignore provisional"),
    ],
)
def test_held_round_stays_held(event: Event, expected: str) -> None:
    state = held(a_replica(WORKER_0), round_number=2)
    assert summarize(judge(state, event, NOW)) == expected
    change = evolve(state, judge(state, event, NOW), NOW)
    held_still = change.job is None or change.job.round == state.job.round
    assert held_still or (change.job is not None and change.job.state is JobState.FAILED)


def test_loss_of_a_vm_ends_the_round_and_orders_another_vm() -> None:
    stopped = after(a_state(), lost(WORKER_0))
    (worker,) = (replica for replica in stopped.replicas if replica.replica_id == WORKER_0)
    assert (stopped.job.round.number, stopped.job.round.is_held) == (2, True)
    assert (worker.state, worker.vm_generation, worker.replaced) == (ReplicaState.REPLACING, 2, 1)


def test_completed_member_is_recalled_when_its_round_ends() -> None:
    rebooted = a_state(a_replica(CHIEF), a_replica(WORKER_0, vm_since=START), a_replica(WORKER_1))
    completed = after(rebooted, exited(WORKER_0, 0))
    stopped = after(completed, exited(CHIEF, 1))
    (worker,) = (replica for replica in stopped.replicas if replica.replica_id == WORKER_0)
    assert (worker.state, worker.vm_generation, worker.awaits_vm) == (ReplicaState.WAITING, 2, True)
    assert {field: getattr(worker, field) for field in NO_VM} == NO_VM, (
        "nothing is known of the VM that it gets"
    )
    assert worker.version == completed.replicas[1].version, "no document is written"


def test_member_that_awaits_its_vm_ends_a_running_round() -> None:
    missing = a_replica(WORKER_0, ReplicaState.REPLACING, vm_generation=2)
    event = MemberMissing("digits_1", attempt=1, round=2, replica_id=WORKER_0, at=NOW)
    assert summarize(judge(running(missing, round_number=2), event, NOW)) == "7 stop_round gone"
    assert summarize(judge(running(round_number=2), event, NOW)) == "1 ignore nothing_to_do"
    assert summarize(judge(held(missing, round_number=3), event, NOW)) == "1 ignore nothing_to_do"


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (held(round_number=2), exited(CHIEF, 0)),
        (running(round_number=2), exited(CHIEF, 0)),
        (after(a_state(), lost(CHIEF)), exited(CHIEF, 0)),
        (held(a_replica(CHIEF), round_number=2), of_ready(CHIEF, exited(CHIEF, 0), incarnation=2)),
    ],
)
def test_exit_0_of_the_primary_is_success_in_any_round_and_on_any_vm(
    state: State, event: Event
) -> None:
    assert summarize(judge(state, event, NOW)) == "2 succeed_job primary_exited_zero"


def test_exit_0_of_the_primary_in_an_earlier_attempt_is_ignored() -> None:
    state = replace(a_state(), job=a_job(attempt=2))
    assert judge(state, exited(CHIEF, 0), NOW).is_provisional


# Readiness


def test_member_is_ready_for_the_round_that_its_vm_reports() -> None:
    state = held(a_replica(WORKER_0), round_number=2)
    assert [is_ready(state.job, replica) for replica in state.replicas] == [True, False, True]
    after_report = after(state, of_ready(WORKER_0, exited(WORKER_0, 1, error=BUG), incarnation=2))
    assert all(is_ready(state.job, replica) for replica in after_report.replicas)
    assert judge(after_report, ready(WORKER_0, incarnation=2), NOW).reason is Reason.NOTHING_TO_DO


def test_host_that_exited_0_is_ready_for_the_next_round() -> None:
    chief = Replica(1, CHIEF, state=ReplicaState.RUNNING, hosts_done=(0, 2))
    state = State(
        a_job(plan=a_plan(groups=(SLICE,)), round=Round(2, is_held=True)), (chief,), whole=True
    )
    event = of_ready(CHIEF, exited(CHIEF, 0), incarnation=2)
    of_host = replace(event, subject=replace(event.subject, host=1))
    assert of_host.ended is not None
    of_host = replace(
        of_host, ended=replace(of_host.ended, subject=replace(of_host.ended.subject, host=1))
    )
    assert summarize(judge(state, of_host, NOW)) == "0 mark_host_ready host_ready"
