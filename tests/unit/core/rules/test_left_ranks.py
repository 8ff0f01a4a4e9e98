"""Ranks of one machine that exit 0 before the others, as torchrun's report shows."""

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
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.left_ranks import were_left_by_ranks

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
ENDS_RANK: Final = "\nW1130 09:27:59 2424 api.py:1028] Sending process 2710 closing signal SIGTERM"
LEFT: Final = exited(CHIEF, 1, error=ERROR, tail=f"[rank0]: {LOST}{REPORT}", ran_s=5)


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (LEFT, True),
        (replace(LEFT, tail=f"[rank0]: {LOST}{ENDS_RANK}{REPORT}"), False),
        (replace(LEFT, tail=LEFT.tail.replace("<NO_OTHER_FAILURES>", "[1]:")), False),
        (replace(LEFT, tail=REPORT), False),
        (replace(LEFT, tail=""), False),
        (replace(LEFT, error=replace(ERROR, type="ValueError", message="bad batch")), False),
        (
            replace(
                LEFT,
                error=ProgramError("ConnectionResetError", "Connection reset by peer", "ssl.py:9"),
            ),
            False,
        ),
    ],
    ids=[
        "the only failure, and no other rank ran",
        "torchrun had to end a rank",
        "another rank failed",
        "the output is cut",
        "no output",
        "a failure of its own",
        "the connection of a service",
    ],
)
def test_rank_was_left_if_all_others_of_its_machine_had_exited_0(
    event: ReplicaExited, *, left: bool
) -> None:
    assert were_left_by_ranks(event) is left


def second(event: ReplicaExited, workers: int) -> tuple[str, str]:
    """Return the text of the first decision, and a summary of that about the same exit again."""
    replica_id = event.subject.replica_id
    plan = alone.a_plan(workers=workers)
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
