"""Rules 4 and 5: lost VMs and internal errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost
from trainmaster.core.actions import Budget, FailJob, MarkReady, ReplaceVm, RerunJob, RestartReplica
from trainmaster.core.decisions import Decision, Reason, Rule
from trainmaster.core.events import ExitCause
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import Budgets, JobState, Placement, State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import LossCause
from trainmaster.core.rules.judge import judge

NOW = at(100)
RUNNING = a_state()
PREPARING = a_state(job=a_job(JobState.PREPARING))
IN_ZONE_B = a_job(JobState.PREPARING, placement=Placement(1, 1))
NO_RETRIES = a_state(job=a_job(plan=a_plan(disable_retries=True)))
RERUN_ON_RESTART = a_job(plan=a_plan(restart_job_on_worker_restart=True))
INTERNAL_USED_1 = a_state(job=a_job(budgets=Budgets(internal_used=1)))
INTERNAL_USED_2 = a_state(job=a_job(budgets=Budgets(internal_used=2)))
WAITING = a_replica(WORKER_0, ReplicaState.WAITING)
RESTARTING = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING, incarnation=2))
COMPLETED = a_state(a_replica(WORKER_0, ReplicaState.COMPLETED))
REPLACED_AND_RUNNING = a_state(a_replica(WORKER_0, vm_generation=2, incarnation=2))
REPLACED_ONCE = a_replica(
    WORKER_0, ReplicaState.REPLACING, incarnation=2, vm_generation=2, replaced=1
)
TIMED_OUT_ONCE = replace(REPLACED_ONCE, startup_timeouts=1)
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
    "second startup timeout in a row": (
        a_state(TIMED_OUT_ONCE),
        TIMEOUT_ON_SECOND_VM,
        "5 rerun_job startup_timeout",
    ),
    "startup timeout after a preemption": (
        a_state(REPLACED_ONCE),
        TIMEOUT_ON_SECOND_VM,
        "4 replace_vm startup_timeout",
    ),
    "startup timeout of an older incarnation": (RESTARTING, TIMEOUT_1, "1 ignore old_incarnation"),
    "startup timeout of a running replica": (RUNNING, TIMEOUT_1, "1 ignore nothing_to_do"),
    "loss reported for an older incarnation": (
        RESTARTING,
        lost(WORKER_0),
        "4 replace_vm preemption",
    ),
    "loss before the agent reported": (a_state(WAITING), lost(WORKER_0), "4 replace_vm preemption"),
    "loss of an older VM": (REPLACED_AND_RUNNING, lost(WORKER_0), "1 ignore old_vm_generation"),
    "loss of a completed replica's VM": (COMPLETED, lost(WORKER_0), "1 ignore nothing_to_do"),
    "exit while the VM shuts down": (RUNNING, STOPPING, "4 replace_vm vm_stopping"),
    "primary's exit 0 while its VM shuts down": (
        RUNNING,
        exited(CHIEF, 0, cause=ExitCause.VM_STOPPING),
        "4 replace_vm vm_stopping",
    ),
    "reboot": (RUNNING, REBOOTED, "4 restart_replica vm_restarted"),
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
        a_state(job=RERUN_ON_RESTART),
        REBOOTED,
        "4 rerun_job vm_restarted",
    ),
    "loss before the first start with restartJobOnWorkerRestart": (
        a_state(WAITING, job=RERUN_ON_RESTART),
        lost(WORKER_0),
        "4 replace_vm preemption",
    ),
    # Rule 5
    "first failed setup": (RUNNING, SETUP_FAILED, "5 rerun_job setup_failed"),
    "second failed setup": (INTERNAL_USED_1, SETUP_FAILED, "5 rerun_job setup_failed"),
    "third failed setup": (INTERNAL_USED_2, SETUP_FAILED, "5 fail_job internal_budget_spent"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_judge_decides_about_a_lost_vm_or_an_internal_error(case: Case) -> None:
    check_case(case, NOW)


def after_reboot(state: State) -> State:
    """Return the state after worker 0's VM rebooted."""
    (worker,) = (replica for replica in state.replicas if replica.replica_id == WORKER_0)
    event = exited(
        WORKER_0,
        cause=ExitCause.VM_RESTARTED,
        incarnation=worker.incarnation,
        vm_generation=worker.vm_generation,
    )
    return apply(state, evolve(state, judge(state, event, NOW), NOW))


def test_every_second_reboot_of_a_vm_is_charged_and_replaces_the_vm() -> None:
    state, seen = a_state(), []
    for _ in range(4):
        state = after_reboot(state)
        (worker,) = (replica for replica in state.replicas if replica.replica_id == WORKER_0)
        seen.append((worker.restarts_used, worker.vm_generation, worker.reboots))
    assert seen == [(0, 1, 1), (1, 2, 0), (1, 2, 1), (2, 3, 0)]


def test_reboots_end_the_job_when_its_budgets_are_spent() -> None:
    worker = a_replica(WORKER_0, reboots=1, restarts_used=5)
    assert action_of(judge(a_state(worker), REBOOTED, NOW), RerunJob).lost == worker.key
    spent = a_state(worker, job=a_job(budgets=Budgets(reruns_used=3)))
    action = action_of(judge(spent, REBOOTED, NOW), FailJob)
    assert action.message == "The replica worker 0 was interrupted by reboots of its VM."


def test_second_internal_retry_is_on_another_vm() -> None:
    retries = [
        action_of(judge(state, SETUP_FAILED, NOW), RerunJob) for state in (RUNNING, INTERNAL_USED_1)
    ]
    assert [retry.lost for retry in retries] == [None, f"1-{WORKER_0}"]


def after(state: State, action: ReplaceVm | MarkReady | RestartReplica) -> Replica:
    return evolve(state, Decision(Rule.VM_LOST, Reason.GONE, "", action), NOW).replicas[0]


def test_startup_timeouts_are_counted_until_the_agent_reports() -> None:
    timed_out = after(RESTARTING, ReplaceVm("1-worker-0", is_startup_timeout=True))
    assert timed_out.startup_timeouts == 1
    again = a_state(timed_out)
    assert after(again, ReplaceVm("1-worker-0")).startup_timeouts == 1, "the agent has not reported"
    assert after(again, MarkReady("1-worker-0", "1", NOW)).startup_timeouts == 0
    exit_reported = RestartReplica("1-worker-0", Budget.RESTARTS)
    assert after(again, exit_reported).startup_timeouts == 0
