"""Rule 8: a program that fails twice in the same way, soon after its start, has a bug, and its
job fails. A failure that another try may repair is restarted.

Decisions are written as the number of the rule, the action and the reason:
`8 fail_job same_failure_again`.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.decisions import Case, check_case
from tests.support.jobs import CHIEF, WORKER_0, a_replica, at, exited
from tests.unit.core.rules.program_failures import (
    BUG,
    GLOO_PEER_LOSS,
    NOW,
    ONE_VM,
    RESTARTED,
    RUNNING,
    TENSORFLOW_PEER_LOSS,
)
from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.rules.judge import judge

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
ON_GPUS = a_state(
    job=a_job(
        plan=a_plan(
            groups=tuple(
                replace(group, accelerator=Accelerator("nvidia-l4", 1)) for group in a_plan().groups
            )
        )
    )
)


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


REPEATED = "8 fail_job same_failure_again"

SECOND_FAILURES: Final[dict[str, Case]] = {
    "same failure again": (*second_exit(BUG, BUG), REPEATED),
    "same failure again with another number in its message": (
        *second_exit(replace(BUG, message="shape (8, 3)"), replace(BUG, message="shape (16, 3)")),
        REPEATED,
    ),
    "same failure again with a random loss and file in its message": (
        *second_exit(
            replace(BUG, message="tensor([-0.2, 1.1]) of /tmp/tmpk3_x9a2b"),
            replace(BUG, message="tensor([0.7, -2.0, 3.1]) of /tmp/tmpzz81kd_f"),
        ),
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
    "same last line of stderr, before what a launcher prints": (
        *second_words(
            "error: no data\nmake: *** [Makefile:2: train] Error 1\n1\n2",
            stderr_line="error: no data",
        ),
        REPEATED,
    ),
    "same words of a launcher alone": (
        *second_words("make: *** [Makefile:2: train] Error 1"),
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
}


@pytest.mark.parametrize("case", SECOND_FAILURES.values(), ids=SECOND_FAILURES)
def test_judge_decides_about_a_second_failure(case: Case) -> None:
    check_case(case, NOW)
