"""Rules 2, 3, 6 and 8 to 10: exits of replicas that are judged alone, by what one exit shows.

A decision is written as the number of its rule, its action and its reason. Status 128 + n is the
signal n. The same failure twice is in `test_same_failure.py`, pauses before restarts are in
`test_pauses.py`.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited
from tests.unit.core.rules.program_failures import (
    BUG,
    NOW,
    OWN,
    RESTARTED,
    RUNNING,
    TENSORFLOW_PEER_LOSS,
)
from trainmaster.core.actions import Budget, FailJob, ReplaceVm, RerunJob, RestartReplica
from trainmaster.core.events import ExitCause
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.job import Budgets, JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.rules.judge import judge

IMPORT_ERROR = replace(BUG, type="ModuleNotFoundError")

BUG_SIGNATURE = f"1, ValueError: bad shape at {OWN}"
PREPARING = a_state(job=a_job(JobState.PREPARING))
NO_RETRIES = a_state(job=a_job(plan=a_plan(disable_retries=True)))
RERUN_ON_RESTART = a_state(job=a_job(plan=a_plan(restart_job_on_worker_restart=True)))
RERUNS_USED_3 = a_job(budgets=Budgets(reruns_used=3))
RESTARTS_USED_5 = a_state(a_replica(WORKER_0, incarnation=6, restarts_used=5))
WAITING = a_state(a_replica(WORKER_0, ReplicaState.WAITING))

EXIT_1 = exited(WORKER_0, 1)
OUT_OF_MEMORY = exited(WORKER_0, signal=9, out_of_memory=True)


def with_policy(preset: Preset = Preset.DEFAULT, *rules: ExitRule) -> State:
    return a_state(job=a_job(plan=a_plan(exit_policy=ExitPolicy(preset, rules))))


def with_rule(first: int, last: int, action: ExitAction, *task_types: TaskType) -> State:
    return with_policy(Preset.DEFAULT, ExitRule(first, last, action, task_types))


SERVICE = with_policy(Preset.SERVICE)
SUCCEEDED = "2 succeed_job primary_exited_zero"
COMMON_ERROR = "8 fail_job common_error"
INSTALL_FAILED = "8 fail_job install_failed"
CRASHED = "9 rerun_job crash_signal"

CASES: Final[dict[str, Case]] = {
    # Rules 2 and 3
    "primary exits 0": (RUNNING, exited(CHIEF, 0), SUCCEEDED),
    "primary exits 0 before its peers are ready": (PREPARING, exited(CHIEF, 0), SUCCEEDED),
    "worker exits 0": (RUNNING, exited(WORKER_0, 0), "3 record_completion exited_zero"),
    # Rule 6
    "failure without retries": (NO_RETRIES, EXIT_1, "6 fail_job retries_disabled"),
    # Rule 8
    "out of memory": (RUNNING, OUT_OF_MEMORY, "8 fail_job out_of_memory"),
    "usage error": (RUNNING, exited(WORKER_0, 2), COMMON_ERROR),
    "command cannot execute": (RUNNING, exited(WORKER_0, 126), COMMON_ERROR),
    "command not found": (RUNNING, exited(WORKER_0, 127), COMMON_ERROR),
    "package cannot be installed": (
        RUNNING,
        exited(WORKER_0, 1, cause=ExitCause.INSTALL),
        INSTALL_FAILED,
    ),
    "image cannot be pulled": (
        RUNNING,
        exited(WORKER_0, 1, cause=ExitCause.INSTALL, error=replace(BUG, type="ImageError")),
        "8 fail_job image_failed",
    ),
    "module cannot be imported": (RUNNING, exited(WORKER_0, 1, error=IMPORT_ERROR), INSTALL_FAILED),
    "module cannot be imported soon after the start": (
        RUNNING,
        exited(WORKER_0, 1, error=IMPORT_ERROR, ran_s=599),
        INSTALL_FAILED,
    ),
    "import fails after the program trained for a while": (
        RUNNING,
        exited(WORKER_0, 1, error=IMPORT_ERROR, ran_s=600),
        RESTARTED,
    ),
    "syntax error in data after days of training": (
        RUNNING,
        exited(WORKER_0, 1, error=replace(BUG, type="SyntaxError"), ran_s=3 * 86_400),
        RESTARTED,
    ),
    "any exit with the preset service": (SERVICE, EXIT_1, COMMON_ERROR),
    "exit that reports a lost peer with the preset service": (
        SERVICE,
        exited(WORKER_0, 1, error=TENSORFLOW_PEER_LOSS),
        RESTARTED,
    ),
    "usage error that reports a lost peer with the preset service": (
        SERVICE,
        exited(WORKER_0, 2, error=TENSORFLOW_PEER_LOSS),
        COMMON_ERROR,
    ),
    "exit that reports a lost peer without retries": (
        NO_RETRIES,
        exited(WORKER_0, 1, error=TENSORFLOW_PEER_LOSS),
        "6 fail_job retries_disabled",
    ),
    "abort without retries": (
        NO_RETRIES,
        exited(WORKER_0, signal=6),
        "6 fail_job retries_disabled",
    ),
    "crash with the preset service": (SERVICE, exited(WORKER_0, 134), CRASHED),
    "out of memory with the preset restart": (
        with_policy(Preset.RESTART),
        OUT_OF_MEMORY,
        RESTARTED,
    ),
    "user rule: permanent": (
        with_rule(64, 80, ExitAction.FAIL),
        exited(WORKER_0, 70),
        "8 fail_job exit_policy",
    ),
    "user rule: rerun": (
        with_rule(3, 3, ExitAction.RERUN),
        exited(WORKER_0, 3),
        "9 rerun_job exit_policy",
    ),
    "user rule: restart": (with_rule(2, 2, ExitAction.RESTART), exited(WORKER_0, 2), RESTARTED),
    "user rule: signal as a code": (
        with_rule(137, 137, ExitAction.FAIL),
        exited(WORKER_0, signal=9),
        "8 fail_job exit_policy",
    ),
    "user rule: other task type": (
        with_rule(1, 1, ExitAction.FAIL, TaskType.PS),
        EXIT_1,
        RESTARTED,
    ),
    # Rule 9
    "SIGSEGV": (RUNNING, exited(WORKER_0, signal=11), CRASHED),
    "SIGABRT": (RUNNING, exited(WORKER_0, signal=6), CRASHED),
    "exit code of SIGABRT": (RUNNING, exited(WORKER_0, 134), CRASHED),
    "exit code of SIGSEGV": (RUNNING, exited(WORKER_0, 139), CRASHED),
    "fourth crash": (
        a_state(job=RERUNS_USED_3),
        exited(WORKER_0, signal=11),
        "9 fail_job reruns_spent",
    ),
    "fourth abort": (
        a_state(job=RERUNS_USED_3),
        exited(WORKER_0, signal=6),
        "9 fail_job reruns_spent",
    ),
    # Rule 10
    "SIGKILL": (RUNNING, exited(WORKER_0, signal=9), RESTARTED),
    "exit 1": (RUNNING, exited(CHIEF, 1, error=BUG), RESTARTED),
    "exit 1 before the replica was ready": (WAITING, EXIT_1, RESTARTED),
    "sixth failure": (
        RESTARTS_USED_5,
        exited(WORKER_0, 1, incarnation=6),
        "10 rerun_job restarts_spent",
    ),
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
    state = a_state(a_replica(WORKER_1, incarnation=2, bug=BUG_SIGNATURE))
    tail = "Traceback (most recent call last):\n  File trainer/task.py\nValueError: bad shape"
    decision = judge(state, exited(WORKER_1, 1, error=BUG, tail=tail, incarnation=2, ran_s=5), NOW)
    message = action_of(decision, FailJob).message
    cause = f"ValueError: bad shape ({OWN})"
    assert (
        message == f"The replica worker 1 exited with a non-zero status of 1. \n{cause}\n\n{tail}"
    )


def test_error_message_of_an_out_of_memory_exit_has_the_services_words() -> None:
    decision = judge(RUNNING, exited(CHIEF, signal=9, out_of_memory=True), NOW)
    message = action_of(decision, FailJob).message
    assert (
        message
        == "The replica chief 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL)."
    )


REBOOTED = exited(WORKER_0, cause=ExitCause.VM_RESTARTED, seconds=0)


@pytest.mark.parametrize("status", [0, 143])
def test_save_after_which_the_vm_stays_restarts_the_program_free_of_charge(status: int) -> None:
    """Also soon after the start: the machine has no fault."""
    saved = exited(CHIEF, status, cause=ExitCause.SAVED)
    decision = judge(RUNNING, saved, NOW)
    assert action_of(decision, RestartReplica).charge is Budget.FREE
    assert decision.text == (
        "Chief 0 ended after it was asked to save: it restarts in the same VM, free of charge."
    )


def test_each_kind_of_failure_is_charged_to_its_own_budget() -> None:
    reboot = action_of(
        judge(a_state(a_replica(WORKER_0, ready_at=at(-600))), REBOOTED, at(0)), RestartReplica
    )
    restart = action_of(judge(RUNNING, EXIT_1, NOW), RestartReplica)
    rerun = action_of(judge(RUNNING, exited(WORKER_0, signal=11), NOW), RerunJob)
    setup = action_of(judge(RUNNING, exited(WORKER_0, cause=ExitCause.SETUP), NOW), ReplaceVm)
    assert reboot.charge is Budget.FREE
    assert (restart.charge, rerun.charge) == (Budget.RESTARTS, Budget.RERUNS)
    assert setup.charge is Budget.FREE
