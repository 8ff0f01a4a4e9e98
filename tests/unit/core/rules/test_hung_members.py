"""The verdict on a round in which one member did not answer: all others report that, it has no end
of its own, and is charged.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).

Decisions are written as the number of the rule, the action and the reason:
`8 fail_job exit_policy`.

An incarnation is one execution of a replica's program.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.held_rounds import (
    BUG,
    JAX_ABORT,
    LATE_PEERS,
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
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round

ONCE: Final = a_job(plan=a_plan(workers=2, disable_retries=True))
"""A job that fails at its first failure."""
HUNG: Final = a_replica(WORKER_1, incarnation=2, ordered_at=at(10), round_reported=True)
"""It was ready again after a directive had ended its program, which had no end of its own."""
NAMES_NO_MEMBER: Final = re.compile("clients|keys|unhealthy")
"""Words of peers that wait for any number of members, or for one that may have ended."""
SILENCE: Final = (
    *(error for error in LATE_PEERS if not NAMES_NO_MEMBER.search(error[1])),
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
    """Return the end of a member that gave up another one, which did not answer it."""
    error = ProgramError(
        "Aborted", f"{JAX_ABORT.message} UNAVAILABLE: … (stopped sending heartbeats):", frame=""
    )
    return exited(replica_id, signal=6, **{"error": error, **fields})  # type: ignore[arg-type]


def test_launcher_that_waits_for_the_others_did_not_hang() -> None:
    state = held(replace(HUNG, left_peers=True), round_number=2)
    decision = judge_held(state, silence(CHIEF), silence(WORKER_0))
    assert decision.text.startswith("Round 1 ended: chief 0 failed first: ")


@pytest.mark.parametrize("error", SILENCE, ids=[message[:30] for _, message in SILENCE])
def test_verdict_charges_the_only_member_that_did_not_answer_the_others(
    error: tuple[str, str],
) -> None:
    state = held(HUNG, round_number=2)
    reporters = (CHIEF, CHIEF, WORKER_0)  # an end that is reported twice counts once
    ends = [exited(member, 1, error=ProgramError(*error, OWN)) for member in reporters]
    decision = judge_held(state, *ends)
    assert decision.text.startswith("Round 1 ended: worker 1 did not answer, and chief 0 failed: ")
    assert decision.text.endswith(". Restart 1 of 5 of worker 1, in the same VM.")
    begun = apply(state, evolve(state, decision, NOW))
    assert [replica.restarts_used for replica in begun.replicas] == [0, 0, 1]


def test_error_message_of_a_job_that_a_hang_ended_names_the_member_that_did_not_answer() -> None:
    decision = judge_held(held(HUNG, round_number=2, job=ONCE), silence(CHIEF), silence(WORKER_0))
    message = action_of(decision, FailJob).message
    assert message.startswith(
        "The replica worker 1 did not answer its peers, and the replica chief 0 exited with a"
        " non-zero status of 6(SIGABRT). \nAborted: "
    )


def test_member_that_did_not_answer_is_charged_in_a_gang_of_two_whichever_it_is() -> None:
    for hung, other in ((CHIEF, WORKER_0), (WORKER_0, CHIEF)):
        job, key = a_job(plan=a_plan(workers=1)), a_replica(hung).key
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
    ("state", "ends", "charged"),
    [
        pytest.param(held(HUNG, round_number=2), (silence(CHIEF),), "chief 0", id="two others"),
        pytest.param(
            held(HUNG, round_number=2),
            (silence(CHIEF), silence(WORKER_0), silence(WORKER_1)),
            "chief 0",
            id="no other",
        ),
        pytest.param(
            held(HUNG, round_number=2),
            (exited(WORKER_0, signal=6), silence(CHIEF)),
            "worker 0",
            id="an abort without words",
        ),
        pytest.param(
            held(HUNG, round_number=2),
            tuple(exited(member, 1, error=PEER_LOSS) for member in (CHIEF, WORKER_0)),
            "chief 0",
            id="a closed connection",
        ),
        pytest.param(
            held(replace(HUNG, round_reported=False), round_number=2),
            (silence(CHIEF), silence(WORKER_0)),
            "chief 0",
            id="it had completed, or lost its VM before it reported",
        ),
        pytest.param(
            held(HUNG, round_number=2, without=(WORKER_1,)),
            (silence(CHIEF), silence(WORKER_0)),
            "chief 0",
            id="it took no part",
        ),
    ],
)
def test_verdict_charges_the_first_end_if_no_single_member_is_known_to_have_hung(
    state: State, ends: tuple[End, ...], charged: str
) -> None:
    decision = judge_held(state, *ends)
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
    state = held(a_replica(replica_id, incarnation=1, ordered_at=at(10)), round_number=2)
    loss = lost(replica_id, incarnation=2)
    again = ready(replica_id, incarnation=2, vm_generation=2)
    events: list[Event] = (
        [loss, again] if lost_first else [ready(replica_id, incarnation=2), loss, again]
    )
    for seconds, event in enumerate(events, start=91):
        state = after(state, event, seconds)
    return state


def test_own_end_counts_also_if_the_member_loses_its_vm_after_its_report() -> None:
    """A verdict does not read all ends of a large round."""
    ended = exited(WORKER_1, 1, error=PEER_LOSS)
    # A verdict that ends the job does not wait for the VM of worker 1.
    policy = ExitPolicy(rules=(ExitRule(first=134, last=134, action=ExitAction.FAIL),))
    job = a_job(plan=a_plan(workers=2, exit_policy=policy))
    state = held(a_replica(WORKER_1, incarnation=1, ordered_at=at(10)), round_number=2, job=job)
    state = after(state, of_ready(WORKER_1, ended, incarnation=2), 91)
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
    assert (
        text in judge_held(held(HUNG, round_number=2), end, silence(CHIEF), silence(WORKER_0)).text
    )


def test_member_that_did_not_answer_has_the_limits_and_exit_rules_of_its_peers_exit() -> None:
    ends = (silence(CHIEF), silence(WORKER_0))
    spent = judge_held(held(replace(HUNG, restarts=(NOW,) * 5), round_number=2), *ends)
    assert action_of(spent, RerunJob).lost == f"1-{WORKER_1}"
    assert "the whole job is rerun (rerun 1 of 3), worker 1 on another VM." in spent.text
    for task_type, expected in (
        (TaskType.CHIEF, "8 fail_job exit_policy"),
        (TaskType.WORKER, "10 begin_round"),
    ):
        rule = ExitRule(first=134, last=134, action=ExitAction.FAIL, task_types=(task_type,))
        state = held(
            HUNG,
            round_number=2,
            job=a_job(plan=a_plan(workers=2, exit_policy=ExitPolicy(rules=(rule,)))),
        )
        assert summarize(judge_held(state, *ends)).startswith(expected)
    earlier = a_replica(WORKER_0, ReplicaState.REPLACING, has_ended=True)  # before an earlier round
    rule = ExitRule(first=134, last=134, action=ExitAction.FAIL)
    state = held(
        HUNG,
        earlier,
        round_number=2,
        job=a_job(plan=a_plan(workers=2, exit_policy=ExitPolicy(rules=(rule,)))),
    )
    assert "ended: chief 0 failed first" in judge_held(state, silence(CHIEF)).text
