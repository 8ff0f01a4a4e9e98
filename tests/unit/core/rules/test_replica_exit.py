"""Rules 2, 3 and 6 to 10: exits of replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from shared.core.actions import Budget, FailJob, RerunJob, RestartReplica
from shared.core.events import ExitCause, ProgramError, ReplicaExited
from shared.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from shared.core.model.job import Budgets, JobState, State
from shared.core.model.replica import LastExit, ReplicaState
from shared.core.model.replica_id import TaskType
from shared.core.rules.judge import judge
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_plan, a_replica, a_state, at, exited

NOW = at(100)
BUG = ProgramError("ValueError", "bad shape", "trainer/task.py:41 in main")
OTHER_BUG = "KeyError at x.py:1 in f"
IMPORT_ERROR = replace(BUG, type="ModuleNotFoundError")
TENSORFLOW_PEER_LOSS = ProgramError(
    "tensorflow.python.framework.errors_impl.UnavailableError", "{{node x}}", "ops.py:12 in execute"
)
GLOO_PEER_LOSS = ProgramError(
    "RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer", "c10d.py:9 in all_reduce"
)
RENDEZVOUS_LOSS = ProgramError(
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
    "The connection to the C10d store has failed. See inner exception for details.",
    "c10d_rendezvous_backend.py:118 in _call_store",
)

RUNNING = a_state()
PREPARING = a_state(job=a_job(JobState.PREPARING))
NO_RETRIES = a_state(job=a_job(plan=a_plan(disable_retries=True)))
RERUN_ON_RESTART = a_state(job=a_job(plan=a_plan(restart_job_on_worker_restart=True)))
RERUNS_USED_3 = a_job(budgets=Budgets(reruns_used=3))
RESTARTS_USED_5 = a_state(a_replica(WORKER_0, incarnation=6, restarts_used=5))
WAITING = a_state(a_replica(WORKER_0, ReplicaState.WAITING))

# States in which worker 0 was lost
DOWN = a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2, lost_at=at(50))
BACK = a_replica(WORKER_0, incarnation=2, lost_at=at(50), ready_at=at(51))
PEER_RESTARTING = a_state(DOWN)
PEER_REPLACING = a_state(replace(DOWN, state=ReplicaState.REPLACING, vm_generation=2))
PEER_BACK = a_state(BACK)
PEER_HELD = a_state(a_replica(WORKER_0, ReplicaState.HELD, incarnation=2, forgiven_at=at(50)))
CHIEF_RESTARTED_SINCE = a_state(BACK, a_replica(CHIEF, incarnation=2, ready_at=at(60)))
CHIEF_FORGIVEN_SINCE = a_state(BACK, a_replica(CHIEF, ReplicaState.HELD, incarnation=2, forgiven_at=at(55)))

EXIT_1 = exited(WORKER_0, 1)
CHIEF_EXIT_1 = exited(CHIEF, 1)
CHIEF_SECOND_EXIT = exited(CHIEF, 1, incarnation=2)
OUT_OF_MEMORY = exited(WORKER_0, signal=9, out_of_memory=True)


def peer_failed_with(error: ProgramError) -> State:
    """Worker 0 restarts after an exit with this error."""
    return a_state(replace(DOWN, last_exit=LastExit(1, 1, None, error.signature)))


def after_exit_with(signature: str | None, incarnation: int = 2) -> State:
    """Worker 0 runs again after its first incarnation failed with this error."""
    return a_state(a_replica(WORKER_0, incarnation=incarnation, last_exit=LastExit(1, 1, None, signature)))


def second_exit(error: ProgramError | None, incarnation: int = 2) -> ReplicaExited:
    return exited(WORKER_0, 1, error=error, incarnation=incarnation)


def with_policy(preset: Preset = Preset.DEFAULT, *rules: ExitRule) -> State:
    return a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(preset, rules))))


def with_rule(first: int, last: int, action: ExitAction, *task_types: TaskType) -> State:
    return with_policy(Preset.DEFAULT, ExitRule(first, last, action, task_types))


SERVICE = with_policy(Preset.SERVICE)
SUCCEEDED = "2 succeed_job primary_exited_zero"
RESTARTED = "10 restart_replica non_zero_exit"
REPEATED = "8 fail_job same_failure_again"
COMMON_ERROR = "8 fail_job common_error"
INSTALL_FAILED = "8 fail_job install_failed"
CRASHED = "9 rerun_job crash_signal"
PEER_DOWN = "7 hold_replica peer_down"

CASES: Final[dict[str, Case]] = {
    # Rules 2 and 3
    "primary exits 0": (RUNNING, exited(CHIEF, 0), SUCCEEDED),
    "primary exits 0 before its peers are ready": (PREPARING, exited(CHIEF, 0), SUCCEEDED),
    "worker exits 0": (RUNNING, exited(WORKER_0, 0), "3 record_completion exited_zero"),
    # Rule 6
    "failure without retries": (NO_RETRIES, EXIT_1, "6 fail_job retries_disabled"),
    # Rule 7
    "failure while a peer restarts": (PEER_RESTARTING, exited(CHIEF, 1, error=TENSORFLOW_PEER_LOSS), PEER_DOWN),
    "failure while a peer's VM is replaced": (PEER_REPLACING, CHIEF_EXIT_1, PEER_DOWN),
    "failure after a peer is back": (PEER_BACK, CHIEF_EXIT_1, "7 hold_replica peer_lost_meanwhile"),
    "second failure after one loss": (CHIEF_RESTARTED_SINCE, CHIEF_SECOND_EXIT, RESTARTED),
    "second failure after one loss, not ready yet": (CHIEF_FORGIVEN_SINCE, CHIEF_SECOND_EXIT, RESTARTED),
    "failure while a peer is held": (PEER_HELD, CHIEF_EXIT_1, RESTARTED),
    "same bug as a peer": (peer_failed_with(BUG), exited(CHIEF, 1, error=BUG), RESTARTED),
    "same lost connection as a peer": (
        peer_failed_with(GLOO_PEER_LOSS),
        exited(CHIEF, 1, error=GLOO_PEER_LOSS),
        PEER_DOWN,
    ),
    "out of memory while a peer is down": (PEER_RESTARTING, exited(CHIEF, signal=9, out_of_memory=True), PEER_DOWN),
    # Rule 8
    "out of memory": (RUNNING, OUT_OF_MEMORY, "8 fail_job out_of_memory"),
    "usage error": (RUNNING, exited(WORKER_0, 2), COMMON_ERROR),
    "command cannot execute": (RUNNING, exited(WORKER_0, 126), COMMON_ERROR),
    "command not found": (RUNNING, exited(WORKER_0, 127), COMMON_ERROR),
    "package cannot be installed": (RUNNING, exited(WORKER_0, 1, cause=ExitCause.INSTALL), INSTALL_FAILED),
    "module cannot be imported": (RUNNING, exited(WORKER_0, 1, error=IMPORT_ERROR), INSTALL_FAILED),
    "same failure again": (after_exit_with(BUG.signature), second_exit(BUG), REPEATED),
    "other failure": (after_exit_with(OTHER_BUG), second_exit(BUG), RESTARTED),
    "same failure as two incarnations before": (after_exit_with(BUG.signature, 3), second_exit(BUG, 3), RESTARTED),
    "second failure without a traceback": (after_exit_with(None), second_exit(None), RESTARTED),
    "peer lost twice, by TensorFlow": (
        after_exit_with(TENSORFLOW_PEER_LOSS.signature),
        second_exit(TENSORFLOW_PEER_LOSS),
        RESTARTED,
    ),
    "peer lost twice, by gloo": (after_exit_with(GLOO_PEER_LOSS.signature), second_exit(GLOO_PEER_LOSS), RESTARTED),
    "peer lost twice, by torchrun": (
        after_exit_with(RENDEZVOUS_LOSS.signature),
        second_exit(RENDEZVOUS_LOSS),
        RESTARTED,
    ),
    "any exit with the preset service": (SERVICE, EXIT_1, COMMON_ERROR),
    "crash with the preset service": (SERVICE, exited(WORKER_0, 134), CRASHED),
    "collateral exit with the preset service": (replace(PEER_RESTARTING, job=SERVICE.job), CHIEF_EXIT_1, PEER_DOWN),
    "out of memory with the preset restart": (with_policy(Preset.RESTART), OUT_OF_MEMORY, RESTARTED),
    "user rule: permanent": (with_rule(64, 80, ExitAction.FAIL), exited(WORKER_0, 70), "8 fail_job exit_policy"),
    "user rule: rerun": (with_rule(3, 3, ExitAction.RERUN), exited(WORKER_0, 3), "9 rerun_job exit_policy"),
    "user rule: restart": (with_rule(2, 2, ExitAction.RESTART), exited(WORKER_0, 2), RESTARTED),
    "user rule: signal as a code": (
        with_rule(137, 137, ExitAction.FAIL),
        exited(WORKER_0, signal=9),
        "8 fail_job exit_policy",
    ),
    "user rule: other task type": (with_rule(1, 1, ExitAction.FAIL, TaskType.PS), EXIT_1, RESTARTED),
    # Rule 9
    "SIGSEGV": (RUNNING, exited(WORKER_0, signal=11), CRASHED),
    "SIGABRT": (RUNNING, exited(WORKER_0, signal=6), CRASHED),
    "exit code of SIGABRT": (RUNNING, exited(WORKER_0, 134), CRASHED),
    "exit code of SIGSEGV": (RUNNING, exited(WORKER_0, 139), CRASHED),
    "fourth crash": (a_state(job=RERUNS_USED_3), exited(WORKER_0, signal=11), "9 fail_job reruns_spent"),
    # Rule 10
    "SIGKILL": (RUNNING, exited(WORKER_0, signal=9), RESTARTED),
    "exit 1": (RUNNING, exited(CHIEF, 1, error=BUG), RESTARTED),
    "exit 1 before the replica was ready": (WAITING, EXIT_1, RESTARTED),
    "sixth failure": (RESTARTS_USED_5, exited(WORKER_0, 1, incarnation=6), "10 rerun_job restarts_spent"),
    "sixth failure in the fourth attempt": (
        replace(RESTARTS_USED_5, job=RERUNS_USED_3),
        exited(WORKER_0, 1, incarnation=6),
        "10 fail_job reruns_spent",
    ),
    "failure with restartJobOnWorkerRestart": (
        RERUN_ON_RESTART,
        EXIT_1,
        "10 rerun_job restart_job_on_worker_restart",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_an_exit(case: Case) -> None:
    check_case(case, NOW)


def test_error_message_of_a_failed_job_has_the_services_words_and_the_traceback() -> None:
    state = a_state(a_replica(WORKER_1, incarnation=2, last_exit=LastExit(1, 1, None, BUG.signature)))
    tail = "Traceback (most recent call last):\n  File trainer/task.py\nValueError: bad shape"
    decision = judge(state, exited(WORKER_1, 1, error=BUG, tail=tail, incarnation=2), NOW)
    message = action_of(decision, FailJob).message
    assert message == f"The replica worker 1 exited with a non-zero status of 1. \n{tail}"


def test_error_message_of_an_out_of_memory_exit_has_the_services_words() -> None:
    decision = judge(RUNNING, exited(CHIEF, signal=9, out_of_memory=True), NOW)
    message = action_of(decision, FailJob).message
    assert message == "The replica chief 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."


def test_each_kind_of_failure_is_charged_to_its_own_budget() -> None:
    reboot = action_of(judge(RUNNING, exited(WORKER_0, cause=ExitCause.VM_RESTARTED), NOW), RestartReplica)
    restart = action_of(judge(RUNNING, EXIT_1, NOW), RestartReplica)
    rerun = action_of(judge(RUNNING, exited(WORKER_0, signal=11), NOW), RerunJob)
    internal = action_of(judge(RUNNING, exited(WORKER_0, cause=ExitCause.SETUP), NOW), RerunJob)
    assert reboot.charge is Budget.FREE
    assert (restart.charge, rerun.charge, internal.charge) == (Budget.RESTARTS, Budget.RERUNS, Budget.INTERNAL)
