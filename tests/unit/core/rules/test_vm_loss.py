"""Rule 4: lost VMs, and VMs of no use.

A VM is of no use if it ends within ten minutes of its start (`USEFUL_LIFE_MIN`), or never runs a
program. `wasted` counts such VMs of a replica in a row; a startup timeout counts as three. A
decision is written as the number of its rule, its action and its reason.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost
from trainmaster.core.actions import FailJob, ReplaceVm
from trainmaster.core.events import ExitCause
from trainmaster.core.model.job import JobState, Placement
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import RETRY_MAX, USEFUL_LIFE_MIN

NOW = at(100)
RUNNING = a_state(
    *(
        a_replica(replica_id, ready_at=NOW - USEFUL_LIFE_MIN, vm_since=NOW - USEFUL_LIFE_MIN)
        for replica_id in (CHIEF, WORKER_0, WORKER_1)
    )
)
"""A job whose VMs have been useful."""
STARTED = a_state()
PREPARING = a_state(job=a_job(JobState.PREPARING))
IN_ZONE_B = a_job(JobState.PREPARING, placement=Placement(zone_index=1, round=1))
NO_RETRIES = a_state(job=a_job(plan=a_plan(disable_retries=True)))
RERUN_ON_RESTART = a_job(plan=a_plan(restart_job_on_worker_restart=True))
WAITING = a_replica(WORKER_0, ReplicaState.WAITING)
RESTARTING = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
COMPLETED = a_state(a_replica(WORKER_0, ReplicaState.COMPLETED))
REPLACED_AND_RUNNING = a_state(a_replica(WORKER_0, vm_generation=2, incarnation=2))
REPLACED_ONCE = a_replica(
    WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, replaced=1
)
TIMED_OUT_ONCE = replace(REPLACED_ONCE, wasted=3)
TIMEOUT_1 = lost(WORKER_0, LossCause.STARTUP_TIMEOUT)
TIMEOUT_2 = lost(WORKER_0, LossCause.STARTUP_TIMEOUT, incarnation=2)
TIMEOUT_ON_SECOND_VM = lost(WORKER_0, LossCause.STARTUP_TIMEOUT, incarnation=2, vm_generation=2)
STOPPING = exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING)
REBOOTED = exited(WORKER_0, cause=ExitCause.VM_RESTARTED)
SETUP_FAILED = exited(WORKER_0, cause=ExitCause.SETUP)

CASES: Final[dict[str, Case]] = {
    "maintenance": (RUNNING, lost(WORKER_1, LossCause.MAINTENANCE), "4 replace_vm maintenance"),
    "preemption": (RUNNING, lost(CHIEF), "4 replace_vm preemption"),
    "host error": (RUNNING, lost(WORKER_0, LossCause.HOST_ERROR), "4 replace_vm host_error"),
    "VM is gone": (RUNNING, lost(WORKER_1, LossCause.GONE), "4 replace_vm gone"),
    "first startup timeout": (RESTARTING, TIMEOUT_2, "4 replace_vm startup_timeout"),
    "second startup timeout in a row, beside a gang that runs": (
        a_state(TIMED_OUT_ONCE),
        TIMEOUT_ON_SECOND_VM,
        "4 replace_vm startup_timeout",
    ),
    "startup timeout after a preemption": (
        a_state(REPLACED_ONCE),
        TIMEOUT_ON_SECOND_VM,
        "4 replace_vm startup_timeout",
    ),
    "startup timeout of an older incarnation": (RESTARTING, TIMEOUT_1, "1 ignore outdated"),
    "startup timeout of a running replica": (RUNNING, TIMEOUT_1, "1 ignore nothing_to_do"),
    "loss reported for an older incarnation": (
        RESTARTING,
        lost(WORKER_0),
        "4 replace_vm preemption",
    ),
    "loss before the agent reported": (a_state(WAITING), lost(WORKER_0), "4 replace_vm preemption"),
    "loss of an older VM": (REPLACED_AND_RUNNING, lost(WORKER_0), "1 ignore outdated"),
    "loss of a completed replica's VM": (COMPLETED, lost(WORKER_0), "1 ignore nothing_to_do"),
    "exit while the VM shuts down": (RUNNING, STOPPING, "4 replace_vm vm_stopping"),
    "primary's exit 0 while its VM shuts down": (
        RUNNING,
        exited(CHIEF, 0, cause=ExitCause.VM_STOPPING),
        "4 replace_vm vm_stopping",
    ),
    "reboot": (RUNNING, REBOOTED, "4 restart_replica vm_restarted"),
    "reboot soon after the start": (STARTED, REBOOTED, "4 replace_vm vm_restarted"),
    "loss without retries": (NO_RETRIES, lost(WORKER_0), "4 replace_vm preemption"),
    "loss with restartJobOnWorkerRestart": (
        a_state(job=RERUN_ON_RESTART),
        lost(WORKER_0),
        "4 rerun_job preemption",
    ),
    "shutdown with restartJobOnWorkerRestart": (
        a_state(job=RERUN_ON_RESTART),
        STOPPING,
        "4 rerun_job vm_stopping",
    ),
    "reboot with restartJobOnWorkerRestart": (
        replace(RUNNING, job=RERUN_ON_RESTART),
        REBOOTED,
        "4 rerun_job vm_restarted",
    ),
    "loss before the first start with restartJobOnWorkerRestart": (
        a_state(WAITING, job=RERUN_ON_RESTART),
        lost(WORKER_0),
        "4 replace_vm preemption",
    ),
    "failed setup": (RUNNING, SETUP_FAILED, "4 replace_vm setup_failed"),
    "failed setup without retries": (NO_RETRIES, SETUP_FAILED, "6 fail_job retries_disabled"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_a_vm_that_is_lost_or_of_no_use(case: Case) -> None:
    check_case(case, NOW)


def test_set_up_that_fails_without_retries_ends_the_job_in_the_words_of_the_service() -> None:
    action = action_of(judge(NO_RETRIES, SETUP_FAILED, NOW), FailJob)
    assert action.message.startswith("Internal error occurred for the current attempt: worker 0 co")


def test_set_up_of_a_replica_that_the_job_may_run_without_never_ends_it() -> None:
    job = a_job(plan=a_plan(gang=False, independent=True))
    state = a_state(replace(WAITING, wasted=20), job=job)
    replacement = action_of(judge(state, SETUP_FAILED, NOW), ReplaceVm)
    assert (replacement.wasted, replacement.next_at) == (30, NOW + RETRY_MAX)
