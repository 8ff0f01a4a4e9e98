"""Rules 2, 3, 6 and 8 to 10: exits of replicas that are judged alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import Case, action_of, check_case
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_replica, at, exited, lost
from trainmaster.core.actions import Budget, FailJob, ReplaceVm, RerunJob, RestartReplica
from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.job import Budgets, JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.rules.judge import judge

NOW = at(100)
OWN = "trainer/task.py:41 in main"
BUG = ProgramError("ValueError", "bad shape", OWN, OWN)
IMPORT_ERROR = replace(BUG, type="ModuleNotFoundError")
TENSORFLOW_PEER_LOSS = ProgramError(
    "tensorflow.python.framework.errors_impl.UnavailableError", "{{node x}}", "ops.py:12 in execute"
)
GLOO_PEER_LOSS = ProgramError(
    "RuntimeError",
    "[gloo/transport/tcp/pair.cc:534] Connection closed by peer",
    "c10d.py:9 in all_reduce",
)
XGBOOST_PEER_LOSS = ProgramError(
    "xgboost.core.XGBoostError",
    "[14:56:43] result.cc:83: [histogram.h:197|14:56:43]:\n\n- [allreduce.cc:135|14:56:43]: Ring"
    " Allreduce failed.\n- [loop.cc:101|14:56:43]: Encountered EOF. The other end is likely"
    " closed.\nStack trace:\n",
    "xgboost/core.py:324 in _check_call",
)
RENDEZVOUS_LOSS = ProgramError(
    "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
    "The connection to the C10d store has failed. See inner exception for details.",
    "c10d_rendezvous_backend.py:118 in _call_store",
)

UNKNOWN_IN_LIBRARY = ProgramError("RuntimeError", "bad state", "lib/a.py:1 in f")

BUG_SIGNATURE = f"1, ValueError: bad shape at {OWN}"
TRANSIENT_FAILURES = (
    replace(BUG, type="google.api_core.exceptions.ServiceUnavailable", message="503 try again"),
    replace(BUG, type="google.api_core.exceptions.TooManyRequests", message="quota"),
    replace(BUG, type="requests.exceptions.ReadTimeout"),
    replace(BUG, type="urllib.error.URLError", message="<urlopen error>"),
    replace(BUG, type="TimeoutError"),
    replace(BUG, type="ConnectionError"),
    replace(BUG, type="OSError", message="[Errno 5] Input/output error"),
    replace(BUG, type="tensorflow.python.framework.errors_impl.ResourceExhaustedError"),
    replace(BUG, type="trainer.data.LoadError", message="cannot load", causes=("ReadTimeout",)),
    replace(BUG, type="socket.gaierror", message="[Errno -3] Temporary failure in name resolution"),
    replace(BUG, type="urllib.error.HTTPError", message="HTTP Error 503: Service Unavailable"),
)
DEVICE_FAILURES = (
    replace(BUG, type="torch.AcceleratorError"),
    replace(BUG, type="jaxlib.xla_extension.XlaRuntimeError"),
    replace(BUG, type="RuntimeError", message="CUDA error: uncorrectable ECC error encountered"),
    replace(BUG, type="RuntimeError", message="NCCL error in: ProcessGroupNCCL.cpp"),
    replace(BUG, type="RuntimeError", message="cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
)
"""They may pass on a machine that has such a device, and on no other."""
LASTING_FAILURES = (
    replace(BUG, type="FileNotFoundError", message="[Errno 2] No such file or directory: 'a.csv'"),
    replace(BUG, type="PermissionError", message="[Errno 13] Permission denied: '/data'"),
    replace(BUG, type="OSError", message="[Errno 28] No space left on device"),
    replace(
        BUG, type="google.api_core.exceptions.NotFound", message="404 GET https://b: Not Found"
    ),
    replace(BUG, type="urllib.error.URLError", message="<urlopen error [Errno -2] Name or service"),
    replace(BUG, type="urllib.error.HTTPError", message="HTTP Error 404: Not Found"),
    replace(BUG, type="torch.OutOfMemoryError", message="CUDA out of memory."),
    replace(BUG, type="AssertionError", message="Torch not compiled with CUDA enabled"),
    replace(
        BUG,
        type="RuntimeError",
        message="Expected all tensors to be on the same device, but found cuda:0 and cpu!",
    ),
    replace(BUG, type="KeyError", message="'connection timed out'"),
    replace(BUG, type="NameError", message="name 'x' is not defined", own_frame=""),
)
"""No restart repairs them, whatever words their messages have."""

UNKNOWN_NAME = replace(BUG, type="socket.gaierror", message="[Errno -2] Name or service not known")
UNKNOWN_SERVICE = replace(
    BUG,
    type="urllib.error.URLError",
    message="<urlopen error [Errno -2] Name or service not known>",
)

RUNNING = a_state()
PREPARING = a_state(job=a_job(JobState.PREPARING))
ON_GPUS = a_state(
    job=a_job(
        plan=a_plan(
            groups=tuple(
                replace(group, accelerator=Accelerator("nvidia-l4", 1)) for group in a_plan().groups
            )
        )
    )
)
ONE_VM = a_state(a_replica(CHIEF), job=a_job(plan=a_plan(workers=0)))
NO_RETRIES = a_state(job=a_job(plan=a_plan(disable_retries=True)))
RERUN_ON_RESTART = a_state(job=a_job(plan=a_plan(restart_job_on_worker_restart=True)))
RERUNS_USED_3 = a_job(budgets=Budgets(reruns_used=3))
RESTARTS_USED_5 = a_state(a_replica(WORKER_0, incarnation=6, restarts_used=5))
WAITING = a_state(a_replica(WORKER_0, ReplicaState.WAITING))

EXIT_1 = exited(WORKER_0, 1)
OUT_OF_MEMORY = exited(WORKER_0, signal=9, out_of_memory=True)


def second_exit(
    first: ProgramError | None,
    second: ProgramError | None,
    state: State = RUNNING,
    *,
    replica: ReplicaId = WORKER_0,
    first_ran_s: float | None = 5,
    second_ran_s: float | None = 5,
    tail: str = "",
) -> tuple[State, ReplicaExited]:
    """Return the state after a replica failed with the first error and was restarted, and its exit
    with the second.
    """
    failure = exited(replica, 1, error=first, ran_s=first_ran_s, tail=tail)
    change = evolve(state, judge(state, failure, NOW), NOW)
    (restarted,) = change.replicas
    running = replace(restarted, state=ReplicaState.RUNNING, ready_at=at(101))
    again = exited(replica, 1, error=second, incarnation=2, ran_s=second_ran_s, tail=tail)
    return a_state(running, job=state.job), again


def second_words(
    first: str, second: str | None = None, stderr_line: str = ""
) -> tuple[State, ReplicaExited]:
    """Return the state after the only replica of a job exited without a traceback, and its exit
    that follows, each with its last line.
    """
    failure = exited(CHIEF, 1, tail=f"{first}\n", ran_s=5)
    restart = judge(ONE_VM, replace(failure, stderr_line=stderr_line), NOW)
    (replica,) = evolve(ONE_VM, restart, NOW).replicas
    running = replace(replica, state=ReplicaState.RUNNING, ready_at=at(101))
    again = exited(CHIEF, 1, tail=f"{second or first}\n", incarnation=2, ran_s=5)
    return a_state(running, job=ONE_VM.job), replace(again, stderr_line=stderr_line)


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
    "same failure again": (*second_exit(BUG, BUG), REPEATED),
    "same failure again with another number in its message": (
        *second_exit(replace(BUG, message="shape (8, 3)"), replace(BUG, message="shape (16, 3)")),
        REPEATED,
    ),
    "same failure in a library, called from the same line": (
        *second_exit(
            replace(BUG, frame="keras/a.py:1 in f"), replace(BUG, frame="keras/a.py:1 in f")
        ),
        REPEATED,
    ),
    "failure of another type": (*second_exit(replace(BUG, type="KeyError"), BUG), RESTARTED),
    "failure with another message": (
        *second_exit(replace(BUG, message="bad type"), BUG),
        RESTARTED,
    ),
    "failure in another line": (
        *second_exit(replace(BUG, own_frame="trainer/task.py:7 in main"), BUG),
        RESTARTED,
    ),
    "same failure outside the job's own code": (
        *second_exit(UNKNOWN_IN_LIBRARY, UNKNOWN_IN_LIBRARY),
        RESTARTED,
    ),
    "same bug by nature outside the job's own code": (
        *second_exit(replace(BUG, own_frame=""), replace(BUG, own_frame="")),
        REPEATED,
    ),
    "same failure after the program trained for a while": (
        *second_exit(BUG, BUG, second_ran_s=600),
        RESTARTED,
    ),
    "same failure just before that time": (
        *second_exit(BUG, BUG, first_ran_s=599, second_ran_s=599),
        REPEATED,
    ),
    "same failure as one after the program trained for a while": (
        *second_exit(BUG, BUG, first_ran_s=600),
        RESTARTED,
    ),
    "same failure of programs that ran for an unknown time": (
        *second_exit(BUG, BUG, second_ran_s=None),
        RESTARTED,
    ),
    "same failure as two incarnations before": (
        a_state(a_replica(WORKER_0, incarnation=3)),
        exited(WORKER_0, 1, error=BUG, incarnation=3, ran_s=5),
        RESTARTED,
    ),
    "second failure without a traceback": (*second_exit(first=None, second=None), RESTARTED),
    "peer lost twice, by TensorFlow": (
        *second_exit(TENSORFLOW_PEER_LOSS, TENSORFLOW_PEER_LOSS),
        RESTARTED,
    ),
    "peer lost twice, by gloo": (*second_exit(GLOO_PEER_LOSS, GLOO_PEER_LOSS), RESTARTED),
    "peer lost twice, by XGBoost": (*second_exit(XGBOOST_PEER_LOSS, XGBOOST_PEER_LOSS), RESTARTED),
    "peer lost twice, by torchrun": (*second_exit(RENDEZVOUS_LOSS, RENDEZVOUS_LOSS), RESTARTED),
    **{
        f"same transient failure again: {error.type} {error.message}": (
            *second_exit(error, error),
            RESTARTED,
        )
        for error in TRANSIENT_FAILURES
    },
    **{
        f"same failure of a device again: {error.type} {error.message}": (
            *second_exit(error, error, ON_GPUS),
            RESTARTED,
        )
        for error in DEVICE_FAILURES
    },
    **{
        f"same failure of a device on a machine without one: {error.type} {error.message}": (
            *second_exit(error, error),
            REPEATED,
        )
        for error in DEVICE_FAILURES
    },
    **{
        f"same lasting failure again: {error.type} {error.message}": (
            *second_exit(error, error, ON_GPUS),
            REPEATED,
        )
        for error in LASTING_FAILURES
    },
    "same last line of the only machine again": (*second_words("error: no data"), REPEATED),
    "same last line of stderr, before or after one of stdout": (
        *second_words("error: no data\nstart", "start\nerror: no data", "error: no data"),
        REPEATED,
    ),
    "same sentence on stderr": (
        *second_words("no rows are left", stderr_line="no rows are left"),
        REPEATED,
    ),
    "same sentence on stdout": (*second_words("no rows are left"), RESTARTED),
    "same warning on stderr": (
        *second_words("UserWarning: this is old", stderr_line="UserWarning: this is old"),
        RESTARTED,
    ),
    "same line with a number on stderr": (
        *second_words("epoch 3 of many", stderr_line="epoch 3 of many"),
        RESTARTED,
    ),
    "same last line of stderr, long before the end": (
        *second_words("error: no GPU\n1\n2\n3\nstopped", stderr_line="error: no GPU"),
        RESTARTED,
    ),
    "another last line of the only machine": (
        *second_words("error: no data", "error: no labels"),
        RESTARTED,
    ),
    "same last line of a network again": (*second_words("Error: connection timed out"), RESTARTED),
    "same last line after one of a network": (
        *second_words("connection timed out\nerror: no data"),
        RESTARTED,
    ),
    "same last line at another time": (
        *second_words(
            "2026-11-28 20:14:31,120 ERROR no data", "2026-11-28 20:15:02,7 ERROR no data"
        ),
        REPEATED,
    ),
    "same last line with another number": (
        *second_words("validation error: 0.31", "validation error: 0.29"),
        RESTARTED,
    ),
    "same last line that reports no failure": (*second_words("label,image"), RESTARTED),
    "same progress bar": (*second_words("45%|####5     | 450/1000 [00:10<00:12]"), RESTARTED),
    "same last line of a launcher": (
        *second_words("make: *** [Makefile:3: train] Error 1"),
        RESTARTED,
    ),
    "same last line of one of several machines": (
        *second_exit(first=None, second=None, tail="error: no data\n"),
        RESTARTED,
    ),
    "no last line": (*second_words("\n"), RESTARTED),
    "name that does not resolve, in a job of one machine": (
        *second_exit(UNKNOWN_NAME, UNKNOWN_NAME, ONE_VM, replica=CHIEF),
        REPEATED,
    ),
    "name that does not resolve, which may be a peer's": (
        *second_exit(UNKNOWN_NAME, UNKNOWN_NAME),
        RESTARTED,
    ),
    "name of a service that does not resolve, in a job of several machines": (
        *second_exit(UNKNOWN_SERVICE, UNKNOWN_SERVICE),
        REPEATED,
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


def test_pause_doubles_with_each_quick_failure_and_ends_with_a_long_run() -> None:
    pauses = []
    state = a_state()
    for incarnation in range(1, 6):
        state, pause_s = after_failure(state, incarnation, ran_s=5)
        pauses.append(pause_s)
    assert pauses == [0, 1, 2, 4, 8]
    state, pause_s = after_failure(state, 6, ran_s=5)
    assert (state.job.attempt, pause_s) == (2, 16)
    for incarnation, expected in ((1, 32), (2, 60)):
        state, pause_s = after_failure(state, incarnation, ran_s=5)
        assert pause_s == expected
    state, pause_s = after_failure(state, 3, ran_s=601)
    assert pause_s == 0


def test_restart_is_at_once_if_the_policy_has_no_pauses() -> None:
    job = a_job(plan=a_plan(exit_policy=ExitPolicy(pauses=False)))
    state, pause_s = after_failure(a_state(job=job), 1, ran_s=5)
    assert pause_s == 0
    state, pause_s = after_failure(state, 2, ran_s=5)
    assert pause_s == 0


def test_only_the_replica_that_failed_pauses_after_a_rerun() -> None:
    state, _ = after_failure(
        a_state(a_replica(CHIEF), a_replica(WORKER_0, quick_failures=1)), 1, ran_s=5, signal=11
    )
    pauses = {
        target.replica.replica_id: target.directive.pause_s
        for target in desired_vms(state.job, state.replicas, NOW)
    }
    assert pauses == {CHIEF: 0, WORKER_0: 1, WORKER_1: 0}


def test_replacement_of_the_vm_ends_the_pauses() -> None:
    state, _ = after_failure(a_state(), 1, ran_s=5)
    replaced = evolve(state, judge(state, lost(WORKER_0, incarnation=2), NOW), NOW)
    assert replaced.replicas[0].quick_failures == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, True),
        (BUG, True),
        (replace(BUG, type="ServiceUnavailable"), False),
        (GLOO_PEER_LOSS, False),
    ],
)
def test_message_of_the_third_quick_failure_suggests_a_bug(
    error: ProgramError | None, *, expected: bool
) -> None:
    replica = a_replica(WORKER_0, incarnation=3, restarts_used=2, quick_failures=2)
    decision = judge(
        a_state(replica), exited(WORKER_0, 1, error=error, incarnation=3, ran_s=5), NOW
    )
    assert "it restarts in the same VM after a pause of 2 s (restart 3 of 5)." in decision.text
    advice = "3 failures in a row, each within 10 minutes of the start, look like a bug."
    assert (advice in decision.text) is expected


def after_failure(
    state: State, incarnation: int, *, ran_s: float, signal: int | None = None
) -> tuple[State, int]:
    """Return the state after worker 0's program failed and was ordered again, and the pause before
    its next start.
    """
    status = None if signal else 1
    (worker,) = (replica for replica in state.replicas if replica.replica_id == WORKER_0)
    event = exited(
        WORKER_0,
        status,
        signal=signal,
        incarnation=incarnation,
        attempt=state.job.attempt,
        ran_s=ran_s,
    )
    event = replace(event, subject=replace(event.subject, vm_generation=worker.vm_generation))
    change = evolve(state, judge(state, event, NOW), NOW)
    job = change.job or state.job
    changed = {replica.key: replica for replica in change.replicas}
    replicas = tuple(changed.get(replica.key, replica) for replica in state.replicas)
    if job.attempt != state.job.attempt:
        replicas = tuple(replica for replica in change.replicas if replica.attempt == job.attempt)
    following = State(job, replicas, whole=True)
    (target,) = [vm for vm in desired_vms(job, replicas, NOW) if vm.replica.replica_id == WORKER_0]
    running = tuple(
        (
            replace(replica, state=ReplicaState.RUNNING, ready_at=at(101))
            if replica is target.replica
            else replica
        )
        for replica in following.replicas
    )
    return replace(following, replicas=running), target.directive.pause_s
