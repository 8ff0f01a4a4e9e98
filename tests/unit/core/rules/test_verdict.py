"""Rule 7 and the verdict: members of a synchronous job stop and start as a whole, and one end decides."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.each_row import each_row
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at, exited, lost, ready
from trainmaster.core.actions import BeginRound, Budget, RerunJob, StopRound
from trainmaster.core.decisions import Decision, Reason
from trainmaster.core.events import AllReady, End, Event, ExitCause, MemberMissing, ProgramError, ReplicaExited, VmReady
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.floor import NO_VM
from trainmaster.core.model.job import Budgets, Job, JobState, State
from trainmaster.core.model.members import is_ready
from trainmaster.core.model.plan import TaskGroup, Tpu
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules.evidence import Rank, rank_of, round_end
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.messages import PEER_SILENT, STILL

NOW: Final = at(100)
OWN: Final = "trainer/task.py:7 in main"
BUG: Final = ProgramError("ValueError", "bad batch", OWN, OWN)
PEER_LOSS: Final = ProgramError("UnavailableError", "Socket closed", "ops.py:1 in f")
LATE_PEERS: Final = (
    (
        "RuntimeError",
        "[gloo/transport/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to complete",
    ),
    ("RuntimeError", "Rank 1 failed to pass monitoredBarrier in 5000 ms"),
    ("torch.distributed.DistStoreError", "Timed out after 301 seconds waiting for clients. 1/2 clients joined."),
    ("RuntimeError", "wait timeout after 300000ms, keys: /default_pg/0//1"),
    ("RuntimeError", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE)"),
    ("jax.errors.JaxRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Id: x::0. This usually happens because"),
    ("jaxlib.XlaRuntimeError", "UNAVAILABLE: The following tasks are unhealthy"),
)
JAX_ABORT: Final = ProgramError("Aborted", "… because the JAX distributed service detected fatal errors.", "")
LAUNCHED_KILL: Final = ProgramError("ChildFailedError", "Signal 9 (SIGKILL) received by PID 7", "")
LAUNCHED_ABORT: Final = ProgramError("ChildFailedError", "Signal 6 (SIGABRT) received by PID 7", "")
MEMBERS: Final = (CHIEF, WORKER_0, WORKER_1)
STEP: Final = "trainer/task.py:9 in step"
DATA: Final = "trainer/data.py:41 in batches"
ALL_STILL: Final = "all 3 replicas were still for 10 minutes"
CHIEF_SILENT: Final = "chief 0 printed nothing for 60 s"
CHIEF_KEY: Final = a_replica(CHIEF).key


def held(number: int = 2, *replicas: Replica, job: Job | None = None, **fields: object) -> State:
    """Return a job whose round `number` is held, and whose members are ready for it."""
    job = job or a_job()
    state = Round(number, is_held=True, began_at=at(10), ordered_at=at(90), stopped_by=WORKER_0)
    given = {replica.replica_id: replica for replica in replicas}
    members = [given.get(member) or a_replica(member, incarnation=number) for member in MEMBERS]
    return a_state(*members, job=replace(job, round=replace(state, **fields)))  # type: ignore[arg-type]


def running(number: int = 2, *replicas: Replica, **fields: object) -> State:
    state = held(number, *replicas)
    return replace(state, job=replace(state.job, round=replace(state.job.round, is_held=False, **fields)))  # type: ignore[arg-type]


def judge_held(state: State, *ends: End) -> Decision:
    event = AllReady(state.job.job_id, state.job.attempt, NOW, state.job.round.number, ends)
    return judge(state, event, NOW)


def after(state: State, event: Event, seconds: float = 100) -> State:
    return apply(state, evolve(state, judge(state, event, at(seconds)), at(seconds)))


def of_ready(replica_id: ReplicaId, incarnation: int, ended: ReplicaExited) -> VmReady:
    return replace(ready(replica_id, incarnation), ended=ended)


# Which jobs run in rounds


SLICE = TaskGroup(TaskType.CHIEF, 1, "", tpu=Tpu("v5litepod-16", "v2-alpha-tpuv5-lite", hosts=4))
SERVER = TaskGroup(TaskType.PS, 1, "n1-standard-4")
EVALUATOR = TaskGroup(TaskType.EVALUATOR, 1, "n1-standard-4")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (a_plan(1), True),
        (a_plan(0), False),
        (a_plan(groups=(SLICE,)), True),
        (a_plan(groups=(*a_plan(0).groups, EVALUATOR)), False),
        (a_plan(groups=(*a_plan(2).groups, SERVER)), False),
        (a_plan(2, independent=True), False),
    ],
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
    assert (late.reason, late.is_provisional) == (Reason.ROUND_ENDED, True)


@each_row(
    "event, expected",
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
        (exited(WORKER_0, 1, error=replace(BUG, type="ImportError"), ran_s=599), "8 fail_job install_failed"),
        (exited(WORKER_0, 1, error=replace(BUG, type="ImportError"), ran_s=600), "7 stop_round member_failed"),
        (exited(WORKER_0, cause=ExitCause.SETUP), "5 rerun_job setup_failed"),
        (exited(WORKER_0, cause=ExitCause.UNFIT), "4 stop_round unfit"),
    ],
)
def test_running_round_ends_with_the_first_failure_of_a_member(event: Event, expected: str) -> None:
    assert summarize(judge(a_state(), event, NOW)) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (lost(WORKER_0), "4 replace_vm preemption"),
        (exited(WORKER_0, cause=ExitCause.SETUP, incarnation=2), "5 rerun_job setup_failed"),
        (exited(WORKER_0, cause=ExitCause.UNFIT, incarnation=2), "4 replace_vm unfit"),
        (exited(WORKER_0, 1, cause=ExitCause.INSTALL, incarnation=2), "8 fail_job install_failed"),
        (exited(WORKER_0, 1, incarnation=2), "1 ignore round_ended"),
    ],
)
def test_held_round_stays_held(event: Event, expected: str) -> None:
    state = held(2, a_replica(WORKER_0))
    assert summarize(judge(state, event, NOW)) == expected
    change = evolve(state, judge(state, event, NOW), NOW)
    assert change.job is None or change.job.state is JobState.FAILED or change.job.attempt == 2


def test_loss_of_a_vm_ends_the_round_and_orders_another_vm() -> None:
    stopped = after(a_state(), lost(WORKER_0))
    (worker,) = (replica for replica in stopped.replicas if replica.replica_id == WORKER_0)
    assert (stopped.job.round.number, stopped.job.round.is_held) == (2, True)
    assert (worker.state, worker.vm_generation, worker.replaced) == (ReplicaState.REPLACING, 2, 1)


def test_completed_member_is_recalled_when_its_round_ends() -> None:
    rebooted = a_state(a_replica(CHIEF), a_replica(WORKER_0, reboots=1, reports_held=False), a_replica(WORKER_1))
    completed = after(rebooted, exited(WORKER_0, 0))
    stopped = after(completed, exited(CHIEF, 1))
    (worker,) = (replica for replica in stopped.replicas if replica.replica_id == WORKER_0)
    assert (worker.state, worker.vm_generation, worker.awaits_vm) == (ReplicaState.WAITING, 2, True)
    assert {field: getattr(worker, field) for field in NO_VM} == NO_VM, "nothing is known of the VM that it gets"
    assert worker.version == completed.replicas[1].version, "no document is written"


def test_member_that_awaits_its_vm_ends_a_running_round() -> None:
    missing = a_replica(WORKER_0, ReplicaState.REPLACING, vm_generation=2)
    event = MemberMissing("digits_1", 1, 2, WORKER_0, NOW)
    assert summarize(judge(running(2, missing), event, NOW)) == "7 stop_round member_missing"
    assert summarize(judge(running(2), event, NOW)) == "1 ignore nothing_to_do"
    assert summarize(judge(held(3, missing), event, NOW)) == "1 ignore nothing_to_do"


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (held(2), exited(CHIEF, 0)),
        (running(2), exited(CHIEF, 0)),
        (after(a_state(), lost(CHIEF)), exited(CHIEF, 0)),
        (held(2, a_replica(CHIEF)), of_ready(CHIEF, 2, exited(CHIEF, 0))),
    ],
)
def test_exit_0_of_the_primary_is_success_in_any_round_and_on_any_vm(state: State, event: Event) -> None:
    assert summarize(judge(state, event, NOW)) == "2 succeed_job primary_exited_zero"


def test_exit_0_of_the_primary_in_an_earlier_attempt_is_ignored() -> None:
    state = replace(a_state(), job=a_job(attempt=2))
    assert judge(state, exited(CHIEF, 0), NOW).reason is Reason.ROUND_ENDED


# Readiness


def test_member_is_ready_for_the_round_that_its_vm_reports() -> None:
    state = held(2, a_replica(WORKER_0))
    assert [is_ready(state.job, replica) for replica in state.replicas] == [True, False, True]
    after_report = after(state, of_ready(WORKER_0, 2, exited(WORKER_0, 1, error=BUG)))
    assert all(is_ready(state.job, replica) for replica in after_report.replicas)
    assert judge(after_report, ready(WORKER_0, 2), NOW).reason is Reason.NOTHING_TO_DO


# Evidence


@each_row(
    "end, rank",
    [
        (lost(WORKER_0), Rank.MACHINE),
        (exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING), Rank.MACHINE),
        (exited(WORKER_0, cause=ExitCause.VM_RESTARTED), Rank.MACHINE),
        (exited(WORKER_0, cause=ExitCause.UNFIT), Rank.MACHINE),
        (exited(WORKER_0, 1, error=BUG), Rank.OWN),
        (exited(WORKER_0, signal=9), Rank.OWN),
        (exited(WORKER_0, 137), Rank.OWN),
        (exited(WORKER_0, 1, out_of_memory=True), Rank.OWN),
        (exited(WORKER_0, 1, error=PEER_LOSS), Rank.PEER),
        *((exited(WORKER_0, 1, error=ProgramError(*error, OWN)), Rank.PEER) for error in LATE_PEERS),
        (exited(WORKER_0, 1, error=ProgramError("ValueError", "the queue was aborted: empty", OWN)), Rank.OWN),
        (exited(WORKER_0, signal=6, error=JAX_ABORT), Rank.PEER),
        (exited(WORKER_0, 1, error=LAUNCHED_KILL), Rank.OWN),
        (exited(WORKER_0, 1, error=LAUNCHED_ABORT), Rank.OTHER),
        (exited(WORKER_0, 1), Rank.OTHER),
        (exited(WORKER_0, 255), Rank.OTHER),
        (exited(WORKER_0, signal=6), Rank.OTHER),
        (exited(WORKER_0, 134), Rank.OTHER),
        (exited(WORKER_0, signal=9, cause=ExitCause.STALLED), Rank.OTHER),
    ],
)
def test_rank_of_an_end(end: End, rank: Rank) -> None:
    assert rank_of(end) is rank


def test_end_counts_for_the_round_that_it_ended_and_not_before_its_start() -> None:
    early = replace(exited(WORKER_0, 1, incarnation=2), at=at(-50))
    assert round_end(running(2, began_at=at(60)), early) == ("1-2", Rank.OTHER, at(60))
    state = held(3, began_at=at(60))
    assert round_end(state, of_ready(WORKER_0, 3, exited(WORKER_0, 1, incarnation=2))) == ("1-2", Rank.OTHER, at(100))
    assert round_end(state, of_ready(WORKER_0, 3, exited(WORKER_0, 1, incarnation=1))) is None
    assert round_end(state, of_ready(WORKER_0, 3, exited(WORKER_0, 0, incarnation=2))) is None
    assert round_end(state, ready(WORKER_0, 3)) is None


IN_THE_HOLD: Final = ("1-3-held", Rank.MACHINE, at(100))


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        (a_replica(WORKER_0, incarnation=2, ordered_at=at(10)), ("1-2", Rank.MACHINE, at(100))),
        (a_replica(WORKER_0, incarnation=3, ordered_at=at(10)), IN_THE_HOLD),  # it has reported how the round ended
        (a_replica(WORKER_0, ReplicaState.REPLACING, ordered_at=at(95)), IN_THE_HOLD),  # its VM was ordered since
        (a_replica(WORKER_0, ReplicaState.WAITING, ordered_at=at(90)), IN_THE_HOLD),  # it completed, and is recalled
    ],
)
def test_loss_while_a_round_is_held_counts_if_the_vm_was_in_the_round_before(worker: Replica, expected: object) -> None:
    assert round_end(held(3, worker), lost(WORKER_0)) == expected
    rerun = held(1, worker, job=a_job(attempt=2))
    end = round_end(rerun, lost(WORKER_0))
    assert end is None or end.round == "2-1-held"


# The verdict


@each_row(
    "ends, is_free",
    [
        ([exited(CHIEF, signal=6)], True),
        ([exited(CHIEF, 1, error=PEER_LOSS)], True),
        ([exited(CHIEF, 1, error=LAUNCHED_ABORT)], True),
        ([exited(CHIEF, 1)], False),
        ([exited(CHIEF, 1), exited(WORKER_0, 1, error=PEER_LOSS)], True),
        ([exited(CHIEF, 1), exited(WORKER_0, 1)], False),
        ([exited(CHIEF, 1, error=BUG), exited(WORKER_0, 1, error=PEER_LOSS)], False),
        ([exited(CHIEF, signal=9), exited(WORKER_0, signal=6)], False),
    ],
    ids=[
        "abort",
        "lost peer",
        "launched abort",
        "no traceback",
        "lost peer reported",
        "no tracebacks",
        "own traceback",
        "killed",
    ],
)
def test_first_round_that_fails_before_all_members_have_reported_is_free_unless_the_failure_is_its_own(
    ends: list[ReplicaExited], *, is_free: bool
) -> None:
    """A VM that is lost before its report leaves no other trace than a peer that fails."""
    state = held(2, job=replace(a_job(), started_at=None))
    action = judge_held(state, *ends).action
    assert (action == BeginRound(2, CHIEF_KEY)) is is_free
    assert judge_held(held(2), *ends).action != BeginRound(2, CHIEF_KEY)


def test_round_begins_after_a_rerun_without_a_verdict() -> None:
    state = held(1)
    assert summarize(judge_held(state)) == "0 begin_round round_begins"


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((lost(WORKER_0),), "Round 1 ended: the VM of worker 0 was preempted. Free of charge."),
        (
            (lost(WORKER_0), exited(WORKER_1, 1, error=BUG)),
            "Round 1 ended: the VM of worker 0 was preempted. Free of charge.",
        ),
        (
            (exited(WORKER_0, cause=ExitCause.VM_RESTARTED),),
            "Round 1 ended: the VM of worker 0 rebooted under its program. Free of charge.",
        ),
        (
            (exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING),),
            "Round 1 ended: the VM of worker 0 was shutting down. Free of charge.",
        ),
    ],
)
def test_machine_decides_before_any_program_and_is_free(ends: tuple[End, ...], text: str) -> None:
    decision = judge_held(held(), *ends)
    assert action_of(decision, BeginRound).charge is Budget.FREE
    assert decision.text == text


def test_own_failure_charges_one_restart_to_its_member() -> None:
    state = held()
    decision = judge_held(state, exited(WORKER_1, 1, error=BUG, ran_s=5))
    expected = (
        f"Round 1 ended: worker 1 failed first: ValueError: bad batch ({OWN}). "
        "Restart 1 of 5 of worker 1, in the same VM."
    )
    assert decision.text == expected
    begun = apply(state, evolve(state, decision, NOW))
    assert [replica.restarts_used for replica in begun.replicas] == [0, 0, 1]
    assert (begun.job.round.number, begun.job.round.is_held, begun.job.round.began_at) == (2, False, NOW)


@each_row(
    "event, plan, expected",
    [
        (exited(WORKER_0, 1), {"disable_retries": True}, "6 fail_job retries_disabled"),
        (exited(WORKER_0, 1), {"restart_job_on_worker_restart": True}, "10 rerun_job restart_job_on_worker_restart"),
        (exited(WORKER_0, signal=9, out_of_memory=True), {}, "8 fail_job out_of_memory"),
        (exited(WORKER_0, 2), {}, "8 fail_job common_error"),
        (exited(WORKER_0, signal=11), {}, "9 rerun_job crash_signal"),
        (exited(WORKER_0, signal=6), {}, "9 rerun_job crash_signal"),
        (exited(WORKER_0, 1, error=PEER_LOSS), {}, "10 begin_round non_zero_exit"),
        (exited(WORKER_0, 1), {"exit_policy": ExitPolicy(Preset.SERVICE)}, "8 fail_job common_error"),
        (exited(WORKER_0, signal=15, cause=ExitCause.STALLED), {}, "14 begin_round stalled"),
    ],
)
def test_the_deciding_end_is_judged_by_the_rules_of_exits(
    event: ReplicaExited, plan: dict[str, object], expected: str
) -> None:
    assert summarize(judge_held(held(job=a_job(plan=a_plan(2, **plan))), event)) == expected


def test_abort_is_a_crash_only_if_no_other_member_failed() -> None:
    abort = exited(WORKER_0, signal=6)
    assert summarize(judge_held(held(), abort, abort)) == "9 rerun_job crash_signal"
    assert summarize(judge_held(held(), abort, exited(CHIEF, 1, error=PEER_LOSS))) == "10 begin_round non_zero_exit"
    assert summarize(judge_held(held(), replace(abort, error=JAX_ABORT))) == "10 begin_round non_zero_exit"
    crash = replace(abort, error=replace(JAX_ABORT, message="Check failed: n > 0"))
    assert summarize(judge_held(held(), crash)) == "9 rerun_job crash_signal"
    assert rank_of(crash) is Rank.OTHER


def test_spent_restarts_rerun_the_job_on_another_vm_of_the_culprit_only() -> None:
    state = held(7, a_replica(WORKER_0, incarnation=7, restarts_used=5))
    decision = judge_held(state, exited(WORKER_0, 1, incarnation=6))
    assert action_of(decision, RerunJob).lost == f"1-{WORKER_0}"
    assert "After 5 restarts, the whole job is rerun (rerun 1 of 3), worker 0 on another VM." in decision.text
    rerun = apply(state, evolve(state, decision, NOW))
    assert [replica.vm_generation for replica in rerun.replicas] == [1, 2, 1]
    assert (rerun.job.round.number, rerun.job.round.is_held) == (1, True), "no old program joins the new attempt"


def test_restarts_that_are_older_than_the_window_do_not_count() -> None:
    worker = a_replica(WORKER_0, incarnation=7, restarts=tuple(at(number) for number in range(5)))
    state = held(7, worker, job=a_job(plan=a_plan(exit_policy=ExitPolicy(window_s=98))))
    decision = judge_held(state, exited(WORKER_0, 1, incarnation=6))
    assert "Restart 3 of 5" in decision.text
    begun = apply(state, evolve(state, decision, NOW))
    assert begun.replicas[1].restarts == (at(3), at(4), NOW)


def test_second_reboot_of_a_vm_costs_a_restart_and_the_member_gets_another_vm() -> None:
    reboot = exited(WORKER_0, cause=ExitCause.VM_RESTARTED)
    once = apply(held(), evolve(held(), judge_held(held(), reboot), NOW))
    assert once.replicas[1].reboots == 1
    state = held(2, a_replica(WORKER_0, incarnation=2, reboots=1))
    decision = judge_held(state, reboot)
    action = action_of(decision, StopRound)
    assert action.replacement is not None
    assert action.replacement.charge is Budget.RESTARTS
    following = apply(state, evolve(state, decision, NOW))
    assert (following.job.round.number, following.job.round.is_held) == (3, True)
    assert (following.replicas[1].vm_generation, following.replicas[1].restarts_used) == (2, 1)


def test_quick_failures_stalls_and_bugs_count_for_the_job() -> None:
    state = held(2, quick_failures=2, stalls=1)
    bug = exited(WORKER_0, 1, error=BUG, ran_s=5)
    begun = apply(state, evolve(state, judge_held(state, bug), NOW))
    assert (begun.job.round.quick_failures, begun.job.round.stalls) == (3, 1)
    again = held(3, bug=begun.job.round.bug)
    other_member = exited(WORKER_1, 1, error=BUG, ran_s=5, incarnation=2)
    assert summarize(judge_held(again, other_member)) == "8 fail_job same_failure_again"
    spent = judge_held(held(2, stalls=3), exited(WORKER_0, signal=15, cause=ExitCause.STALLED))
    assert summarize(spent) == "14 rerun_job stalls_spent"
    assert action_of(spent, RerunJob).lost == f"1-{WORKER_0}"


def test_verdict_waits_for_all_members_unless_it_ends_the_job() -> None:
    missing = a_replica(WORKER_1, ReplicaState.WAITING)
    restart = judge_held(held(2, missing), exited(WORKER_0, 1))
    assert (restart.reason, restart.is_provisional) == (Reason.NOT_YET, True)
    out_of_memory = exited(WORKER_0, signal=9, out_of_memory=True)
    assert summarize(judge_held(held(2, missing), out_of_memory)) == "8 fail_job out_of_memory"


def test_verdict_on_a_round_that_began_is_ignored() -> None:
    assert judge_held(running(2)).reason is Reason.NOTHING_TO_DO


def test_fourth_rerun_ends_the_job() -> None:
    state = held(job=a_job(budgets=Budgets(reruns_used=3)))
    assert summarize(judge_held(state, exited(WORKER_0, signal=11))) == "9 fail_job reruns_spent"


def test_reboot_of_a_vm_that_was_replaced_since_does_not_count_for_its_successor() -> None:
    state = held(2, a_replica(WORKER_0, incarnation=2, vm_generation=2, reboots=1))
    decision = judge_held(state, exited(WORKER_0, cause=ExitCause.VM_RESTARTED))
    action = action_of(decision, BeginRound)
    assert (action.charge, action.is_reboot) == (Budget.FREE, False)


def test_host_that_exited_0_is_ready_for_the_next_round() -> None:
    chief = Replica(1, CHIEF, state=ReplicaState.RUNNING, hosts_done=(0, 2))
    state = State(a_job(plan=a_plan(groups=(SLICE,)), round=Round(2, is_held=True)), (chief,), whole=True)
    event = of_ready(CHIEF, 2, exited(CHIEF, 0))
    of_host = replace(event, subject=replace(event.subject, host=1))
    assert of_host.ended is not None
    of_host = replace(of_host, ended=replace(of_host.ended, subject=replace(of_host.ended.subject, host=1)))
    assert summarize(judge(state, of_host, NOW)) == "0 mark_host_ready host_ready"


def test_verdict_does_not_name_one_of_several_members_that_stalled() -> None:
    stalls = [exited(replica_id, signal=15, cause=ExitCause.STALLED) for replica_id in (CHIEF, WORKER_0)]
    assert judge_held(held(), *stalls).text == (
        "Round 1 ended: several members printed nothing for the job's stallTimeout. "
        "All members restart in their VMs (stall 1 of 3)."
    )


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (
            [(STILL, STEP), (STILL, DATA), (STILL, STEP)],
            ALL_STILL + ": worker 0 in call (trainer/data.py:41), the others in call (trainer/task.py:9)",
        ),
        ([(STILL, STEP)] * 2, ALL_STILL + ": all in call (trainer/task.py:9)"),
        ([(STILL, "")], ALL_STILL),
        (
            [("Silent", DATA), (PEER_SILENT, STEP)],
            CHIEF_SILENT + ": chief 0 in call (trainer/data.py:41), worker 0 in call (trainer/task.py:9)",
        ),
        ([("Silent", ""), ("Silent", "")], "several members printed nothing for 60 s"),
        ([(PEER_SILENT, "")], "another member"),
    ],
)  # fmt: skip
def test_verdict_on_a_stall_says_where_the_members_hung(errors: list[tuple[str, str]], text: str) -> None:
    words = {STILL: "still for 10 minutes", "Silent": "printed nothing for 60 s", PEER_SILENT: "another member"}
    stalls = [
        exited(
            replica_id,
            signal=6,
            cause=ExitCause.STALLED,
            error=ProgramError(kind, words[kind], "torch/x.py:1 in call" if own else "", own),
        )
        for replica_id, (kind, own) in zip((CHIEF, WORKER_0, WORKER_1), errors, strict=False)
    ]
    decision = judge_held(held(), *stalls, *stalls)  # an exit may be reported, and be part of a vm-ready, too
    assert decision.text == f"Round 1 ended: {text}. All members restart in their VMs (stall 1 of 3)."


@pytest.mark.parametrize(
    ("worker", "ends", "absent"),
    [
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(10)), (CHIEF, WORKER_0), "; worker 1 reported no failure"),
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(90)), (CHIEF, WORKER_0), "; worker 1 had exited 0"),
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(10)), (CHIEF,), ""),
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(10)), MEMBERS, ""),
    ],
    ids=["hangs", "completed", "two others", "no other"],
)
def test_verdict_names_the_only_member_that_reports_no_failure_if_all_others_lost_a_peer(
    worker: Replica, ends: tuple[ReplicaId, ...], absent: str
) -> None:
    decision = judge_held(held(2, worker), *(exited(member, 1, error=PEER_LOSS) for member in ends))
    assert f"chief 0 failed first: UnavailableError: Socket closed (ops.py:1 in f){absent}. Restart 1" in decision.text
    own = judge_held(held(2, worker), *(exited(member, 1, error=BUG) for member in ends))
    assert "; worker" not in own.text


HUNG: Final = a_replica(WORKER_1, incarnation=2, ordered_at=at(10))
SILENCE: Final = (
    *(error for error in LATE_PEERS if not re.search("clients|keys|unhealthy", error[1])),
    ("Aborted", "Terminating process because … absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"),
    ("DeadlineExceededError", "Collective ops is aborted by: …\n\nRPC: /tensorflow.CoordinationService/Heartbeat"),
    ("UnavailableError", "Error reported from /job:worker/task:0: tasks are unhealthy (stopped sending heartbeats):"),
)


def silence(replica_id: ReplicaId, **fields: object) -> ReplicaExited:
    error = ProgramError("Aborted", f"{JAX_ABORT.message} UNAVAILABLE: … (stopped sending heartbeats):", "")
    return exited(replica_id, signal=6, **{"error": error, **fields})  # type: ignore[arg-type]


@each_row("error", SILENCE, ids=[message[:30] for _, message in SILENCE])
def test_verdict_charges_the_only_member_that_did_not_answer_the_others(error: tuple[str, str]) -> None:
    state = held(2, HUNG, stalls=1)
    ends = [exited(member, 1, error=ProgramError(*error, OWN)) for member in (CHIEF, CHIEF, WORKER_0)]
    decision = judge_held(state, *ends)
    assert decision.text.startswith("Round 1 ended: worker 1 did not answer, and chief 0 failed: ")
    assert decision.text.endswith(". Restart 1 of 5 of worker 1, in the same VM.")
    begun = apply(state, evolve(state, decision, NOW))
    assert [replica.restarts_used for replica in begun.replicas] == [0, 0, 1]


def test_member_that_did_not_answer_is_charged_in_a_gang_of_two_whichever_it_is() -> None:
    for hung, other in ((CHIEF, WORKER_0), (WORKER_0, CHIEF)):
        job, key = a_job(plan=a_plan(1)), a_replica(hung).key
        two = [a_replica(member, incarnation=2, ordered_at=at(10)) for member in (CHIEF, WORKER_0)]
        state = a_state(*two, job=replace(job, round=Round(2, is_held=True, began_at=at(10), ordered_at=at(90))))
        action = action_of(judge_held(state, silence(other), silence(other)), BeginRound)
        assert (action.replica, action.charge) == (key, Budget.RESTARTS)


@each_row(
    "state, ends",
    [
        (held(2, HUNG), (silence(CHIEF),)),
        (held(2, HUNG), (silence(CHIEF), silence(WORKER_0), silence(WORKER_1))),
        (held(2, HUNG), (exited(WORKER_0, signal=6), silence(CHIEF))),
        (held(2, HUNG), tuple(exited(member, 1, error=PEER_LOSS) for member in (CHIEF, WORKER_0))),
        (held(2, replace(HUNG, ordered_at=at(90))), (silence(CHIEF), silence(WORKER_0))),
        (held(2, replace(HUNG, ordered_at=at(95), vm_generation=2)), (silence(CHIEF), silence(WORKER_0))),
        (held(2, HUNG, without=(WORKER_1,)), (silence(CHIEF), silence(WORKER_0))),
    ],
    ids=[
        "two others",
        "no other",
        "an abort without words",
        "a closed connection",
        "it completed",
        "its VM was replaced since",
        "it took no part",
    ],
)
def test_verdict_charges_the_first_end_if_no_single_member_is_known_to_have_hung(
    state: State, ends: tuple[End, ...]
) -> None:
    decision = judge_held(state, *ends)
    charged = "worker 0" if "signal 6" in decision.text else "chief 0"
    assert f"ended: {charged} failed first: " in decision.text
    assert f"Restart 1 of 5 of {charged}" in decision.text


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lost(WORKER_1), "Round 1 ended: the VM of worker 1 was preempted. Free of charge."),
        (exited(WORKER_1, 1, error=BUG), "worker 1 failed first: ValueError"),
        (exited(WORKER_1, 1), "worker 1 failed first: it exited with status 1"),
        (exited(WORKER_1, signal=9, cause=ExitCause.STALLED), "worker 1 printed nothing for the job's stallTimeout"),
    ],
)
def test_end_that_is_stronger_evidence_decides_before_the_silence_of_a_member(end: End, text: str) -> None:
    assert text in judge_held(held(2, HUNG), end, silence(CHIEF), silence(WORKER_0)).text


def test_member_that_did_not_answer_has_the_limits_and_exit_rules_of_its_peers_exit() -> None:
    ends = (silence(CHIEF), silence(WORKER_0))
    spent = judge_held(held(2, replace(HUNG, restarts=(NOW,) * 5)), *ends)
    assert action_of(spent, RerunJob).lost == f"1-{WORKER_1}"
    assert "the whole job is rerun (rerun 1 of 3), worker 1 on another VM." in spent.text
    for task_type, expected in ((TaskType.CHIEF, "8 fail_job exit_policy"), (TaskType.WORKER, "10 begin_round")):
        rule = ExitRule(134, 134, ExitAction.FAIL, (task_type,))
        state = held(2, HUNG, job=a_job(plan=a_plan(2, exit_policy=ExitPolicy(rules=(rule,)))))
        assert summarize(judge_held(state, *ends)).startswith(expected)
    earlier = a_replica(WORKER_0, ReplicaState.REPLACING, has_ended=True)  # before an earlier round
    rule = ExitRule(134, 134, ExitAction.FAIL)
    state = held(2, HUNG, earlier, job=a_job(plan=a_plan(2, exit_policy=ExitPolicy(rules=(rule,)))))
    assert "ended: chief 0 failed first" in judge_held(state, silence(CHIEF)).text


def test_rerun_keeps_the_vm_that_replaced_the_one_on_which_the_member_failed() -> None:
    state = held(2, a_replica(WORKER_0, incarnation=2, vm_generation=2, instance_id="2002"))
    rerun = apply(state, evolve(state, judge_held(state, exited(WORKER_0, signal=11)), NOW))
    (worker,) = (replica for replica in rerun.replicas if replica.replica_id == WORKER_0)
    assert (worker.attempt, worker.vm_generation, worker.instance_id) == (2, 2, "2002")


def test_round_begins_without_a_report_of_an_agent_of_an_earlier_release() -> None:
    """It does not report while its round is held."""
    state = held(2, a_replica(WORKER_1, reports_held=False))
    decisions = [judge(state, AllReady(state.job.job_id, 1, at(90 + s), 2, ()), at(90 + s)) for s in (29, 30)]
    assert [decision.is_provisional for decision in decisions] == [True, False]
    assert action_of(decisions[1], BeginRound).number == 2
    replaced = held(2, a_replica(WORKER_1, ReplicaState.REPLACING, reports_held=False))
    assert judge_held(replaced).is_provisional, "the agent of a new VM reports"
