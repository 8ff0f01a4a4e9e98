"""Ranks of one machine that exit 0 before the others, as torchrun's report shows.

Decisions are written as the number of the rule, the action and the reason:
`8 fail_job same_failure_again`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support import alone
from tests.support.decisions import summarize
from tests.support.jobs import CHIEF, WORKER_0, a_replica, a_state, at, exited
from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.evolve import evolve
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, Program, TaskGroup, Variable
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.left_ranks import ranks_of, ranks_that_left

LOST: Final = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:31904. This is typically caused by a remote worker crashing."
)
ERROR: Final = ProgramError(
    "RuntimeError",
    LOST,
    "distributed/distributed_c10d.py:3252 in all_reduce",
    "run/train.py:16 in <module>",
)
REPORT: Final = """
E1130 09:25:26 29930 api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 32511) of binary: python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 32511)
"""
"""As torchrun of PyTorch 2.13 prints it if the other rank had exited 0."""
SILENT: Final = "[gloo/transport/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation"
SEVERAL: Final = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : {} (pid: 21937)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 21938)
"""
ENDS_RANK: Final = "\nW1130 09:27:59 2424 api.py:1028] Sending process 2710 closing signal SIGTERM"
LEFT: Final = exited(CHIEF, 1, error=ERROR, tail=f"[rank0]: {LOST}{REPORT}", ran_s=5)
STOPPED_RANK: Final = replace(
    LEFT,
    tail=f"[rank1]: {LOST}\nSending process 21937 closing signal SIGTERM{SEVERAL.format(-15)}",
)
"""As torchrun prints it if a further rank waited, too, and torchrun ended it."""
FAILED_RANKS: Final = replace(LEFT, tail=f"[rank1]: {LOST}{SEVERAL.format(1)}")


@pytest.mark.parametrize(
    ("event", "left"),
    [
        pytest.param(LEFT, True, id="the only failure, and no other rank ran"),
        pytest.param(
            replace(LEFT, tail=f"[rank0]: {LOST}{ENDS_RANK}{REPORT}"),
            False,
            id="torchrun had to end a rank",
        ),
        pytest.param(
            replace(LEFT, tail=LEFT.tail.replace("<NO_OTHER_FAILURES>", "exitcode  : 1 (pid: 9)")),
            False,
            id="another rank failed",
        ),
        pytest.param(replace(LEFT, tail=REPORT), False, id="the output is cut"),
        pytest.param(replace(LEFT, tail=""), False, id="no output"),
        pytest.param(
            replace(LEFT, error=replace(ERROR, type="ValueError", message="bad batch")),
            False,
            id="a failure of its own",
        ),
        pytest.param(
            replace(
                LEFT,
                error=ProgramError("ConnectionResetError", "Connection reset by peer", "ssl.py:9"),
            ),
            False,
            id="the connection of a service",
        ),
    ],
)
def test_rank_was_left_if_all_others_of_its_machine_had_exited_0(
    event: ReplicaExited, *, left: bool
) -> None:
    assert ranks_that_left(event, 2) == ("All other ranks" if left else "")


@pytest.mark.parametrize(
    ("event", "ranks", "left"),
    [
        pytest.param(STOPPED_RANK, 4, "2 of the 4 ranks", id="two left"),
        pytest.param(STOPPED_RANK, 3, "1 of the 3 ranks", id="one left"),
        pytest.param(STOPPED_RANK, 2, "", id="none left"),
        pytest.param(STOPPED_RANK, None, "", id="unknown number"),
        pytest.param(
            replace(STOPPED_RANK, tail=STOPPED_RANK.tail.replace(LOST, "")),
            4,
            "",
            id="the output is cut",
        ),
        pytest.param(
            replace(STOPPED_RANK, error=replace(ERROR, message=SILENT)),
            4,
            "",
            id="the rank that was ended may hang",
        ),
        pytest.param(FAILED_RANKS, 3, "1 of the 3 ranks", id="two failed"),
        pytest.param(
            replace(FAILED_RANKS, error=replace(ERROR, message=SILENT)),
            3,
            "1 of the 3 ranks",
            id="two waited in vain",
        ),
        pytest.param(FAILED_RANKS, 2, "", id="both failed"),
        pytest.param(replace(LEFT, tail=f"[rank0]: {LOST}"), 4, "", id="no report"),
    ],
)
def test_ranks_that_the_report_does_not_name_had_exited_0(
    event: ReplicaExited, ranks: int | None, left: str
) -> None:
    tail = event.tail
    if event.error and event.error.message == SILENT:
        tail = tail.replace(LOST, SILENT)
    assert ranks_that_left(replace(event, tail=tail), ranks) == left


@pytest.mark.parametrize(
    ("args", "variable", "gpus", "ranks"),
    [
        (("torchrun", "--nproc-per-node=4", "train.py"), None, 0, 4),
        (("torchrun", "--nproc_per_node", "3", "train.py"), "8", 0, 3),
        (("accelerate", "launch", "--num_processes", "2", "train.py"), None, 0, 2),
        (("torchrun", "train.py"), "8", 0, 8),
        (("torchrun", "train.py"), None, 2, 2),
        (("torchrun", "train.py"), None, 0, 1),
        (("torchrun", "--nproc-per-node", "gpu", "train.py"), None, 2, 2),
        (("torchrun", "--nproc-per-node=auto", "train.py"), None, 0, None),
        (("torchrun", "--nproc-per-node"), None, 0, None),
        (("torchrun", "train.py", "--nproc-per-node=16"), None, 2, 2),
        (("torchrun", "-m", "train", "--nproc-per-node=16"), None, 2, 2),
        (("python3", "-m", "torch.distributed.run", "--nproc-per-node=4", "a.py"), None, 0, 4),
        (("python", "train.py", "torchrun", "--nproc-per-node=4"), None, 2, None),
        (("accelerate", "launch", "--config_file", "two.yaml", "train.py"), None, 8, None),
        (("accelerate", "launch", "train.py", "--num_processes", "16"), None, 8, None),
        (("bash", "-c", "torchrun --nproc-per-node=4 train.py"), None, 8, None),
        (("./run.sh",), "4", 8, None),
        (("torchrun", "--no-python", "./run.sh", "--nproc-per-node=16"), None, 8, None),
        (("accelerate", "launch", "--no_python", "./run.sh"), None, 8, None),
    ],
)
def test_number_of_ranks_is_that_of_the_command_or_of_the_gpus(
    args: tuple[str, ...], variable: str | None, gpus: int, ranks: int | None
) -> None:
    environment = (Variable("PET_NPROC_PER_NODE", variable),) if variable else ()
    program = Program((), "trainmaster_folder", args, None, environment=environment)
    accelerator = Accelerator("nvidia-l4", gpus) if gpus else None
    group = TaskGroup(TaskType.CHIEF, 1, "g2-standard-4", accelerator)
    assert ranks_of(program, group) == ranks


@pytest.mark.parametrize("count", ["gpu", "auto"])
def test_number_of_ranks_is_not_known_if_the_job_hides_gpus(count: str) -> None:
    args = ("torchrun", f"--nproc-per-node={count}", "train.py")
    environment = (Variable("CUDA_VISIBLE_DEVICES", "0,1"),)
    program = Program((), "trainmaster_folder", args, None, environment=environment)
    group = TaskGroup(TaskType.CHIEF, 1, "g2-standard-96", Accelerator("nvidia-l4", 8))
    assert ranks_of(program, group) is None


def second(event: ReplicaExited, workers: int, *args: str) -> tuple[str, str]:
    """Return the text of the first decision, and a summary of that about the same exit again.

    `args`: the command.
    """
    replica_id = event.subject.replica_id
    plan = alone.a_plan(workers=workers)
    plan = replace(plan, program=replace(plan.program, args=args))
    state = a_state(a_replica(replica_id), job=alone.a_job(plan=plan))
    first = judge(state, event, at(100))
    (restarted,) = evolve(state, first, at(100)).replicas
    running = replace(restarted, state=ReplicaState.RUNNING, ready_at=at(101))
    again = replace(event, subject=replace(event.subject, incarnation=2))
    return first.text, summarize(judge(a_state(running, job=state.job), again, at(200)))


def test_ranks_that_end_early_twice_on_the_only_machine_end_the_job() -> None:
    text, again = second(LEFT, workers=0)
    assert "All other ranks of chief 0 had exited 0. Give all ranks the same number of" in text
    assert again == "8 fail_job same_failure_again"


def test_some_of_many_ranks_that_end_early_twice_on_the_only_machine_end_the_job() -> None:
    text, again = second(STOPPED_RANK, 0, "torchrun", "--nproc-per-node=4", "train.py")
    assert "2 of the 4 ranks of chief 0 had exited 0. Give all ranks the same number of" in text
    assert again == "8 fail_job same_failure_again"


@pytest.mark.parametrize(
    ("event", "workers"),
    [
        (replace(LEFT, tail=f"[rank0]: {LOST}{ENDS_RANK}{REPORT}"), 0),
        (exited(WORKER_0, 1, error=ERROR, tail=LEFT.tail, ran_s=5), 2),
    ],
    ids=["a rank may hang", "the lost peer may be on another machine"],
)
def test_lost_peer_that_may_be_another_one_is_left_to_the_budgets(
    event: ReplicaExited, workers: int
) -> None:
    text, again = second(event, workers)
    assert "had exited 0" not in text
    assert again == "10 restart_replica non_zero_exit"
