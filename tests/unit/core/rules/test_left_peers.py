"""The verdict on a round whose members report a lost peer, and one or more report no failure: they
had exited 0, or their ranks had. Twice the same proves a bug.

A member that exits 0 has left its peers: it is completed, and is recalled for the next round when
the present one ends. Under a launcher such as torchrun, the ranks of a member may all have exited 0
while the launcher waits for those of other members.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).

Decisions are written as the number of the rule, the action and the reason:
`8 fail_job same_failure_again`.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.held_rounds import (
    BUG,
    LATE_PEERS,
    MEMBERS,
    NOW,
    PEER_LOSS,
    held,
    judge_held,
)
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_replica,
    at,
    exited,
)
from tests.unit.core.rules.test_stalled_rounds import DATA, STEP
from trainmaster.core.actions import BeginRound, FailJob
from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId

RAN: Final[dict[str, Any]] = {"incarnation": 2, "ordered_at": at(10)}
"""Fields of a member that ran in round 1, which began then, and is ready for round 2."""
WAITS_FOR_PEERS: Final[dict[str, Any]] = {**RAN, "left_peers": True}
STOPPED: Final[dict[str, Any]] = {**RAN, "round_reported": True}
COMPLETED: Final[dict[str, Any]] = {"incarnation": 2, "ordered_at": at(90)}
"""Fields of a member that is recalled: it was ordered when round 1 ended."""


@pytest.mark.parametrize(
    ("worker", "ends", "absent"),
    [
        pytest.param(
            a_replica(WORKER_1, **RAN),
            (CHIEF, WORKER_0),
            "; worker 1 reported no failure",
            id="hangs",
        ),
        pytest.param(
            a_replica(WORKER_1, **COMPLETED),
            (CHIEF, WORKER_0),
            "; worker 1 had exited 0",
            id="completed",
        ),
        pytest.param(
            a_replica(WORKER_1, **WAITS_FOR_PEERS),
            (CHIEF, WORKER_0),
            "; the ranks of worker 1 had exited 0",
            id="left its peers",
        ),
        pytest.param(a_replica(WORKER_1, **RAN), (CHIEF,), "", id="two others"),
        pytest.param(a_replica(WORKER_1, **RAN), MEMBERS, "", id="no other"),
    ],
)
def test_verdict_names_the_only_member_that_reports_no_failure_if_all_others_lost_a_peer(
    worker: Replica, ends: tuple[ReplicaId, ...], absent: str
) -> None:
    decision = judge_held(
        held(worker, round_number=2), *(exited(member, 1, error=PEER_LOSS) for member in ends)
    )
    assert (
        f"chief 0 failed first: UnavailableError: Socket closed (ops.py:1 in f){absent}. Restart 1"
        in decision.text
    )
    own = judge_held(
        held(worker, round_number=2), *(exited(member, 1, error=BUG) for member in ends)
    )
    assert "; worker" not in own.text


SILENT: Final = ProgramError(*LATE_PEERS[0], STEP)


@pytest.mark.parametrize(
    ("worker_0", "worker_1", "left"),
    [
        pytest.param(COMPLETED, COMPLETED, "; worker 0, worker 1 had exited 0", id="two completed"),
        pytest.param(
            WAITS_FOR_PEERS,
            WAITS_FOR_PEERS,
            "; the ranks of worker 0, worker 1 had exited 0",
            id="two launchers wait",
        ),
        pytest.param(
            COMPLETED,
            WAITS_FOR_PEERS,
            "; worker 0 had exited 0; the ranks of worker 1 had exited 0",
            id="one of each",
        ),
        pytest.param(STOPPED, COMPLETED, "; worker 1 had exited 0", id="one was stopped"),
        pytest.param(STOPPED, STOPPED, "", id="none has left"),
    ],
)
def test_verdict_names_all_members_that_had_left_the_others(
    worker_0: dict[str, Any], worker_1: dict[str, Any], left: str
) -> None:
    state = held(a_replica(WORKER_0, **worker_0), a_replica(WORKER_1, **worker_1), round_number=2)
    decision = judge_held(state, exited(CHIEF, 1, error=PEER_LOSS, ran_s=20))
    assert (
        f"chief 0 failed first: UnavailableError: Socket closed (ops.py:1 in f){left}. Restart 1"
        in decision.text
    )
    assert ("Give all ranks the same number of steps" in decision.text) is (left != "")


@pytest.mark.parametrize(
    ("worker_0", "error", "action"),
    [
        (COMPLETED, None, "8 fail_job same_failure_again"),
        (STOPPED, None, "8 fail_job same_failure_again"),
        (STOPPED, SILENT, "10 begin_round non_zero_exit"),
    ],
    ids=["two completed", "one was stopped", "the one that was stopped may hang"],
)
def test_members_that_twice_leave_several_others_prove_a_bug(
    worker_0: dict[str, Any], error: ProgramError | None, action: str
) -> None:
    event = left()
    if error is not None:
        event = replace(event, error=replace(error, own_frame=STEP))
    first = held(a_replica(WORKER_0, **worker_0), recalled(2), round_number=2)
    begun = apply(first, evolve(first, judge_held(first, event), NOW))
    again = a_replica(WORKER_0, **{**worker_0, "incarnation": worker_0["incarnation"] + 1})
    decision = judge_held(held(again, recalled(3), round_number=3, bug=begun.job.round.bug), event)
    assert summarize(decision) == action


CONNECTION_CLOSED: Final = ProgramError(
    "RuntimeError",
    "[…/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:14731",
    frame="",
)


def left(member: ReplicaId = CHIEF, own: str = STEP, port: int = 14731) -> ReplicaExited:
    """Return the end of a member that lost a peer in the line `own` of its program."""
    message = CONNECTION_CLOSED.message.replace("14731", str(port))
    error = replace(CONNECTION_CLOSED, message=message, own_frame=own)
    return exited(member, 1, error=error, ran_s=20)


def recalled(number: int) -> Replica:
    """Return a member that had exited 0 before the round ended."""
    return a_replica(WORKER_1, incarnation=number, ordered_at=at(90))


def waiting(number: int) -> Replica:
    """Return a member whose ranks had exited 0 before its launcher was ended."""
    return a_replica(WORKER_1, incarnation=number, ordered_at=at(10), left_peers=True)


def test_launcher_whose_ranks_exit_0_twice_before_those_of_the_others_proves_a_bug() -> None:
    state = held(waiting(2), round_number=2)
    first = judge_held(state, left(), left(WORKER_0))
    assert "; the ranks of worker 1 had exited 0. " in first.text
    assert first.text.endswith(
        "Give all ranks the same number of steps: the others wait for those that end."
    )
    begun = apply(state, evolve(state, first, NOW))
    decision = judge_held(
        held(waiting(3), round_number=3, bug=begun.job.round.bug), left(), left(WORKER_0)
    )
    assert summarize(decision) == "8 fail_job same_failure_again"


def test_peers_that_twice_lose_a_member_that_had_exited_0_prove_a_bug() -> None:
    state = held(recalled(2), round_number=2)
    begun = apply(state, evolve(state, judge_held(state, left(), left(WORKER_0)), NOW))
    again = held(recalled(3), round_number=3, bug=begun.job.round.bug)
    decision = judge_held(again, left(WORKER_0, port=7588), left())
    assert summarize(decision) == "8 fail_job same_failure_again"
    assert "; worker 1 had exited 0. This error is permanent" in decision.text
    failure = action_of(decision, FailJob)
    assert "give all ranks the same number of steps" in failure.message


@pytest.mark.parametrize(
    ("worker", "ends"),
    [
        (a_replica(WORKER_1, incarnation=3, ordered_at=at(10)), (left(WORKER_0), left())),
        (recalled(3), (left(WORKER_0, own=DATA), left(own=DATA))),
        (recalled(3), (replace(left(WORKER_0), ran_s=3600), replace(left(), ran_s=3600))),
        (recalled(3), (left(WORKER_0), exited(CHIEF, 1, error=BUG))),
    ],
    ids=["has not exited 0", "at another line", "after an hour", "one failed by itself"],
)
def test_peers_that_lose_a_member_in_another_way_prove_no_bug(
    worker: Replica, ends: tuple[ReplicaExited, ...]
) -> None:
    state = held(recalled(2), round_number=2)
    begun = apply(state, evolve(state, judge_held(state, left(), left(WORKER_0)), NOW))
    decision = judge_held(held(worker, round_number=3, bug=begun.job.round.bug), *ends)
    assert isinstance(decision.action, BeginRound)


@pytest.mark.parametrize("failures", [0, 1])
def test_member_that_is_lost_without_a_failure_of_its_own_has_advice(failures: int) -> None:
    alive = a_replica(WORKER_1, incarnation=2, ordered_at=at(10))
    decision = judge_held(
        held(alive, round_number=2, quick_failures=failures), left(), left(WORKER_0)
    )
    times = " 2 times in a row, no" if failures else " No"
    assert f"{times} VM and no program was lost. If the ranks of worker 1 end" in decision.text
