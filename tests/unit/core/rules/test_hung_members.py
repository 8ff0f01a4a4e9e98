"""The verdict on a round that ended because members hung."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.held_rounds import (
    BUG,
    JAX_ABORT,
    LATE_PEERS,
    MEMBERS,
    NOW,
    OWN,
    PEER_LOSS,
    after,
    held,
    judge_held,
    of_ready,
)
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    a_state,
    at,
    exited,
    lost,
    ready,
)
from trainmaster.core.actions import BeginRound, Budget, FailJob, RerunJob
from trainmaster.core.events import End, Event, ExitCause, ProgramError, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
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
            error=ProgramError(kind, words[kind], "torch/x.py:1 in call" if own else "", own),
        )
        for replica_id, (kind, own) in zip((CHIEF, WORKER_0, WORKER_1), errors, strict=False)
    ]
    decision = judge_held(
        held(), *stalls, *stalls
    )  # an exit may be reported, and be part of a vm-ready, too
    restart = f"Restart 1 of 5 of {charged.words}, in the same VM."
    assert decision.text == f"Round 1 ended: {text}. {restart}"


@pytest.mark.parametrize(
    ("worker", "ends", "absent"),
    [
        (
            a_replica(WORKER_1, incarnation=2, ordered_at=at(10)),
            (CHIEF, WORKER_0),
            "; worker 1 reported no failure",
        ),
        (
            a_replica(WORKER_1, incarnation=2, ordered_at=at(90)),
            (CHIEF, WORKER_0),
            "; worker 1 had exited 0",
        ),
        (
            a_replica(WORKER_1, incarnation=2, ordered_at=at(10), left_peers=True),
            (CHIEF, WORKER_0),
            "; the ranks of worker 1 had exited 0",
        ),
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(10)), (CHIEF,), ""),
        (a_replica(WORKER_1, incarnation=2, ordered_at=at(10)), MEMBERS, ""),
    ],
    ids=["hangs", "completed", "left its peers", "two others", "no other"],
)
def test_verdict_names_the_only_member_that_reports_no_failure_if_all_others_lost_a_peer(
    worker: Replica, ends: tuple[ReplicaId, ...], absent: str
) -> None:
    decision = judge_held(held(2, worker), *(exited(member, 1, error=PEER_LOSS) for member in ends))
    assert (
        f"chief 0 failed first: UnavailableError: Socket closed (ops.py:1 in f){absent}. Restart 1"
        in decision.text
    )
    own = judge_held(held(2, worker), *(exited(member, 1, error=BUG) for member in ends))
    assert "; worker" not in own.text


COMPLETED: Final = {"incarnation": 2, "ordered_at": at(90)}
WAITS_FOR_PEERS: Final = {"incarnation": 2, "ordered_at": at(10), "left_peers": True}
STOPPED: Final = {"incarnation": 2, "ordered_at": at(10), "round_reported": True}
SILENT: Final = ProgramError(*LATE_PEERS[0], STEP)


@pytest.mark.parametrize(
    ("worker_0", "worker_1", "left"),
    [
        (COMPLETED, COMPLETED, "; worker 0, worker 1 had exited 0"),
        (
            WAITS_FOR_PEERS,
            WAITS_FOR_PEERS,
            "; the ranks of worker 0, worker 1 had exited 0",
        ),
        (
            COMPLETED,
            WAITS_FOR_PEERS,
            "; worker 0 had exited 0; the ranks of worker 1 had exited 0",
        ),
        (STOPPED, COMPLETED, "; worker 1 had exited 0"),
        (STOPPED, STOPPED, ""),
    ],
    ids=[
        "two completed",
        "two launchers wait",
        "one of each",
        "one was stopped",
        "none has left",
    ],
)
def test_verdict_names_all_members_that_had_left_the_others(
    worker_0: dict[str, Any], worker_1: dict[str, Any], left: str
) -> None:
    state = held(2, a_replica(WORKER_0, **worker_0), a_replica(WORKER_1, **worker_1))
    decision = judge_held(state, exited(CHIEF, 1, error=PEER_LOSS, ran_s=20))
    assert (
        f"chief 0 failed first: UnavailableError: Socket closed (ops.py:1 in f){left}. Restart 1"
        in (decision.text)
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
    first = held(2, a_replica(WORKER_0, **worker_0), recalled(2))
    begun = apply(first, evolve(first, judge_held(first, event), NOW))
    again = a_replica(WORKER_0, **{**worker_0, "incarnation": worker_0["incarnation"] + 1})
    decision = judge_held(held(3, again, recalled(3), bug=begun.job.round.bug), event)
    assert summarize(decision) == action


CONNECTION_CLOSED: Final = ProgramError(
    "RuntimeError",
    "[…/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:14731",
    frame="",
)


def left(member: ReplicaId = CHIEF, own: str = STEP, port: int = 14731) -> ReplicaExited:
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
    state = held(2, waiting(2))
    first = judge_held(state, left(), left(WORKER_0))
    assert "; the ranks of worker 1 had exited 0. " in first.text
    assert first.text.endswith(
        "Give all ranks the same number of steps: the others wait for those that end."
    )
    begun = apply(state, evolve(state, first, NOW))
    decision = judge_held(held(3, waiting(3), bug=begun.job.round.bug), left(), left(WORKER_0))
    assert summarize(decision) == "8 fail_job same_failure_again"


def test_launcher_that_waits_for_the_others_did_not_hang() -> None:
    state = held(2, replace(HUNG, left_peers=True))
    decision = judge_held(state, silence(CHIEF), silence(WORKER_0))
    assert decision.text.startswith("Round 1 ended: chief 0 failed first: ")


def test_peers_that_twice_lose_a_member_that_had_exited_0_prove_a_bug() -> None:
    state = held(2, recalled(2))
    begun = apply(state, evolve(state, judge_held(state, left(), left(WORKER_0)), NOW))
    again = held(3, recalled(3), bug=begun.job.round.bug)
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
    state = held(2, recalled(2))
    begun = apply(state, evolve(state, judge_held(state, left(), left(WORKER_0)), NOW))
    decision = judge_held(held(3, worker, bug=begun.job.round.bug), *ends)
    assert isinstance(decision.action, BeginRound)


@pytest.mark.parametrize("failures", [0, 1])
def test_member_that_is_lost_without_a_failure_of_its_own_has_advice(failures: int) -> None:
    alive = a_replica(WORKER_1, incarnation=2, ordered_at=at(10))
    decision = judge_held(held(2, alive, quick_failures=failures), left(), left(WORKER_0))
    times = " 2 times in a row, no" if failures else " No"
    assert f"{times} VM and no program was lost. If the ranks of worker 1 end" in decision.text


HUNG: Final = a_replica(WORKER_1, incarnation=2, ordered_at=at(10), round_reported=True)
SILENCE: Final = (
    *(error for error in LATE_PEERS if not re.search("clients|keys|unhealthy", error[1])),
    ("Aborted", "Terminating process because … absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded"),
    (
        "DeadlineExceededError",
        "Collective ops is aborted by: …\n\nRPC: /tensorflow.CoordinationService/Heartbeat",
    ),
    (
        "UnavailableError",
        "Error reported from /job:worker/task:0: tasks are unhealthy (stopped sending heartbeats):",
    ),
)


def silence(replica_id: ReplicaId, **fields: object) -> ReplicaExited:
    error = ProgramError(
        "Aborted", f"{JAX_ABORT.message} UNAVAILABLE: … (stopped sending heartbeats):", frame=""
    )
    return exited(replica_id, signal=6, **{"error": error, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("error", SILENCE, ids=[message[:30] for _, message in SILENCE])
def test_verdict_charges_the_only_member_that_did_not_answer_the_others(
    error: tuple[str, str],
) -> None:
    state = held(2, HUNG)
    ends = [
        exited(member, 1, error=ProgramError(*error, OWN)) for member in (CHIEF, CHIEF, WORKER_0)
    ]
    decision = judge_held(state, *ends)
    assert decision.text.startswith("Round 1 ended: worker 1 did not answer, and chief 0 failed: ")
    assert decision.text.endswith(". Restart 1 of 5 of worker 1, in the same VM.")
    begun = apply(state, evolve(state, decision, NOW))
    assert [replica.restarts_used for replica in begun.replicas] == [0, 0, 1]


ONCE: Final = a_job(plan=a_plan(2, disable_retries=True))


def test_error_message_of_a_job_that_a_hang_ended_names_the_member_that_did_not_answer() -> None:
    decision = judge_held(held(2, HUNG, job=ONCE), silence(CHIEF), silence(WORKER_0))
    message = action_of(decision, FailJob).message
    assert message.startswith(
        "The replica worker 1 did not answer its peers, and the replica chief 0 exited with a"
        " non-zero status of 6(SIGABRT). \nAborted: "
    )


def test_error_message_of_a_job_that_a_stall_ended_is_that_of_the_member_that_is_charged() -> None:
    stalls = [
        exited(
            replica_id,
            signal=6,
            cause=ExitCause.STALLED,
            error=ProgramError(STILL, "still for 10 minutes", "torch/x.py:1 in call", own),
        )
        for replica_id, own in zip(MEMBERS, (STEP, DATA, STEP), strict=True)
    ]
    action = action_of(judge_held(held(2, job=ONCE), *stalls), FailJob)
    assert action.replica == a_replica(WORKER_0).key
    assert action.message.startswith(
        "The replica worker 0 was ended because it was still for 10 minutes, in call"
        " (trainer/data.py:41)."
    )


def test_member_that_did_not_answer_is_charged_in_a_gang_of_two_whichever_it_is() -> None:
    for hung, other in ((CHIEF, WORKER_0), (WORKER_0, CHIEF)):
        job, key = a_job(plan=a_plan(1)), a_replica(hung).key
        two = [
            a_replica(member, incarnation=2, ordered_at=at(10), round_reported=True)
            for member in (CHIEF, WORKER_0)
        ]
        state = a_state(
            *two, job=replace(job, round=Round(2, is_held=True, began_at=at(10), ordered_at=at(90)))
        )
        action = action_of(judge_held(state, silence(other), silence(other)), BeginRound)
        assert (action.replica, action.charge) == (key, Budget.RESTARTS)


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        (held(2, HUNG), (silence(CHIEF),)),
        (held(2, HUNG), (silence(CHIEF), silence(WORKER_0), silence(WORKER_1))),
        (held(2, HUNG), (exited(WORKER_0, signal=6), silence(CHIEF))),
        (held(2, HUNG), tuple(exited(member, 1, error=PEER_LOSS) for member in (CHIEF, WORKER_0))),
        (held(2, replace(HUNG, round_reported=False)), (silence(CHIEF), silence(WORKER_0))),
        (held(2, HUNG, without=(WORKER_1,)), (silence(CHIEF), silence(WORKER_0))),
    ],
    ids=[
        "two others",
        "no other",
        "an abort without words",
        "a closed connection",
        "it had completed, or lost its VM before it reported",
        "it took no part",
    ],
)
def test_verdict_charges_the_first_end_if_no_single_member_is_known_to_have_hung(
    state: State, ends: tuple[End, ...]
) -> None:
    decision = judge_held(state, *ends)
    charged = "worker 0" if "signal 6" in decision.text else "chief 0"
    assert f"ended: {charged} failed first: " in decision.text
    assert f"Restart 1 of 5 of {charged}" in decision.text


def test_member_that_hung_is_charged_also_if_it_loses_its_vm_after_its_report() -> None:
    """It has reported that a directive ended its program. The loss comes too late to explain it."""
    state = replied(WORKER_1, lost_first=False)
    decision = judge_held(state, silence(CHIEF), silence(WORKER_0))
    assert decision.text.startswith("Round 1 ended: worker 1 did not answer, and chief 0 failed: ")
    assert decision.text.endswith(". Restart 1 of 5 of worker 1, on another VM.")


def test_member_that_loses_its_vm_before_its_report_is_charged_for_nothing() -> None:
    """The verdict also reads the loss, which decides. This is the rule without it."""
    state = replied(WORKER_1, lost_first=True)
    decision = judge_held(state, silence(CHIEF), silence(WORKER_0))
    assert "Restart 1 of 5 of chief 0" in decision.text


def replied(replica_id: ReplicaId, *, lost_first: bool) -> State:
    """Return a held round whose member has lost its VM, before or after its report, and is ready on
    another one.
    """
    state = held(2, a_replica(replica_id, incarnation=1, ordered_at=at(10)))
    loss = lost(replica_id, incarnation=2)
    again = ready(replica_id, 2, vm_generation=2)
    events: list[Event] = [loss, again] if lost_first else [ready(replica_id, 2), loss, again]
    for seconds, event in enumerate(events, start=91):
        state = after(state, event, seconds)
    return state


def test_own_end_counts_also_if_the_member_loses_its_vm_after_its_report() -> None:
    """A verdict does not read all ends of a large round."""
    ended = exited(WORKER_1, 1, error=PEER_LOSS)
    policy = ExitPolicy(
        rules=(ExitRule(first=134, last=134, action=ExitAction.FAIL),)
    )  # it waits for no VM
    job = a_job(plan=a_plan(2, exit_policy=policy))
    state = held(2, a_replica(WORKER_1, incarnation=1, ordered_at=at(10)), job=job)
    state = after(state, of_ready(WORKER_1, 2, ended), 91)
    state = after(state, lost(WORKER_1, incarnation=2), 92)
    assert "worker 1" not in judge_held(state, silence(CHIEF), silence(WORKER_0)).text


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lost(WORKER_1), "Round 1 ended: the VM of worker 1 was preempted. Free of charge."),
        (exited(WORKER_1, 1, error=BUG), "worker 1 failed first: ValueError"),
        (exited(WORKER_1, 1), "worker 1 failed first: it exited with status 1"),
        (
            exited(WORKER_1, signal=9, cause=ExitCause.STALLED),
            "worker 1 printed nothing for the job's stallTimeout",
        ),
    ],
)
def test_end_that_is_stronger_evidence_decides_before_the_silence_of_a_member(
    end: End, text: str
) -> None:
    assert text in judge_held(held(2, HUNG), end, silence(CHIEF), silence(WORKER_0)).text


def test_member_that_did_not_answer_has_the_limits_and_exit_rules_of_its_peers_exit() -> None:
    ends = (silence(CHIEF), silence(WORKER_0))
    spent = judge_held(held(2, replace(HUNG, restarts=(NOW,) * 5)), *ends)
    assert action_of(spent, RerunJob).lost == f"1-{WORKER_1}"
    assert "the whole job is rerun (rerun 1 of 3), worker 1 on another VM." in spent.text
    for task_type, expected in (
        (TaskType.CHIEF, "8 fail_job exit_policy"),
        (TaskType.WORKER, "10 begin_round"),
    ):
        rule = ExitRule(first=134, last=134, action=ExitAction.FAIL, task_types=(task_type,))
        state = held(2, HUNG, job=a_job(plan=a_plan(2, exit_policy=ExitPolicy(rules=(rule,)))))
        assert summarize(judge_held(state, *ends)).startswith(expected)
    earlier = a_replica(WORKER_0, ReplicaState.REPLACING, has_ended=True)  # before an earlier round
    rule = ExitRule(first=134, last=134, action=ExitAction.FAIL)
    state = held(2, HUNG, earlier, job=a_job(plan=a_plan(2, exit_policy=ExitPolicy(rules=(rule,)))))
    assert "ended: chief 0 failed first" in judge_held(state, silence(CHIEF)).text
