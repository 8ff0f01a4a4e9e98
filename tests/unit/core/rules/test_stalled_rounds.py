"""The verdict on a round that agents ended because its members stalled: where each hung, and who is
charged.

`held()` is a job of three members whose round 2 awaits the verdict on round 1; `judge_held` is this
verdict, on the given ends (`tests.support.held_rounds`). The error of a member that stalled names
the place where it hung, and its own frame: the innermost one in the job's code. Its type is
`Silent` if the program printed nothing for the job's stallTimeout, `STILL` if it also used nothing
of its machine, and `PEER_SILENT` if that is true of another member.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.decisions import action_of
from tests.support.held_rounds import (
    MEMBERS,
    held,
    judge_held,
)
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    a_job,
    a_plan,
    a_replica,
    exited,
)
from trainmaster.core.actions import FailJob
from trainmaster.core.events import ExitCause, ProgramError
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.rules.stall_texts import PEER_SILENT, STILL

STEP: Final = "trainer/task.py:9 in step"
DATA: Final = "trainer/data.py:41 in batches"
ALL_STILL: Final = "all 3 replicas were still for 10 minutes"
CHIEF_SILENT: Final = "chief 0 printed nothing for 60 s"
SILENT_WORKER: Final = "worker 0 printed nothing for 60 s"


def test_verdict_does_not_name_one_of_several_members_that_stalled() -> None:
    stalls = [
        exited(replica_id, signal=15, cause=ExitCause.STALLED) for replica_id in (CHIEF, WORKER_0)
    ]
    assert (
        judge_held(held(), *stalls).text
        == "Round 1 ended: several members printed nothing for the job's stallTimeout. "
        "Restart 1 of 5 of chief 0, in the same VM."
    )


@pytest.mark.parametrize(
    ("errors", "text", "charged"),
    [
        (
            [(STILL, STEP), (STILL, DATA), (STILL, STEP)],
            ALL_STILL
            + ": worker 0 in call (trainer/data.py:41), the others in call (trainer/task.py:9)",
            WORKER_0,
        ),
        ([(STILL, STEP)] * 2, ALL_STILL + ": all in call (trainer/task.py:9)", CHIEF),
        ([(STILL, "")], ALL_STILL, CHIEF),
        (
            [("Silent", DATA), (PEER_SILENT, STEP)],
            CHIEF_SILENT
            + ": chief 0 in call (trainer/data.py:41), worker 0 in call (trainer/task.py:9)",
            CHIEF,
        ),
        (
            [(PEER_SILENT, STEP), ("Silent", DATA)],
            SILENT_WORKER
            + ": chief 0 in call (trainer/task.py:9), worker 0 in call (trainer/data.py:41)",
            WORKER_0,
        ),
        ([("Silent", ""), ("Silent", "")], "several members printed nothing for 60 s", CHIEF),
        ([(PEER_SILENT, "")], "another member", CHIEF),
    ],
)
def test_verdict_on_a_stall_says_where_the_members_hung_and_charges_the_one_that_differs(
    errors: list[tuple[str, str]], text: str, charged: ReplicaId
) -> None:
    """`errors`: type and own frame, of the first members in the order of `MEMBERS`."""
    words = {
        STILL: "still for 10 minutes",
        "Silent": "printed nothing for 60 s",
        PEER_SILENT: "another member",
    }
    stalls = [
        exited(
            replica_id,
            signal=6,
            cause=ExitCause.STALLED,
            error=ProgramError(
                kind,
                words[kind],
                frame="torch/x.py:1 in call" if own_frame else "",
                own_frame=own_frame,
            ),
        )
        for replica_id, (kind, own_frame) in zip(MEMBERS, errors, strict=False)
    ]
    # Each is reported twice: when it happens, and again when the member is ready.
    decision = judge_held(held(), *stalls, *stalls)
    restart = f"Restart 1 of 5 of {charged.words}, in the same VM."
    assert decision.text == f"Round 1 ended: {text}. {restart}"


ONCE: Final = a_job(plan=a_plan(workers=2, disable_retries=True))
"""A job that fails at its first failure."""


def test_error_message_of_a_job_that_a_stall_ended_is_that_of_the_member_that_is_charged() -> None:
    stalls = [
        exited(
            replica_id,
            signal=6,
            cause=ExitCause.STALLED,
            error=ProgramError(
                STILL, "still for 10 minutes", "torch/x.py:1 in call", own_frame=own_frame
            ),
        )
        for replica_id, own_frame in zip(MEMBERS, (STEP, DATA, STEP), strict=True)
    ]
    action = action_of(judge_held(held(round_number=2, job=ONCE), *stalls), FailJob)
    assert action.replica == a_replica(WORKER_0).key
    assert action.message.startswith(
        "The replica worker 0 was ended because it was still for 10 minutes, in call"
        " (trainer/data.py:41)."
    )


def test_error_that_a_hung_member_printed_is_named() -> None:
    printed = "printed nothing for 60 s\nValueError: bad row (trainer/data.py:7 in load)"
    stalls = [
        exited(member, signal=6, cause=ExitCause.STALLED, error=ProgramError(kind, words, "", ""))
        for member, kind, words in (
            (CHIEF, PEER_SILENT, "another member"),
            (WORKER_0, "Silent", printed),
        )
    ]
    assert judge_held(held(), *stalls).text.startswith(
        f"Round 1 ended: {SILENT_WORKER} after the error ValueError: bad row"
        " (trainer/data.py:7 in load). Restart"
    )
