"""The verdict on a round: one end decides.

A round is one common run of all members of a job. When one of them ends it, the next round is held:
the others are stopped, and report how their programs ended. The end of the first rank, and of these
the earliest, decides whether the next round is free of charge, or is charged to one member. Ranks
are, in this order: of the machine, of a program's own failure, others, and of a lost peer.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).

Decisions are written as the number of the rule, the action and the reason:
`0 begin_round round_begins`.

An attempt is one execution of the whole job, and an incarnation one execution of a replica's
program within it. The generation of a VM tells it from earlier VMs of the same replica.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.held_rounds import (
    BUG,
    JAX_ABORT,
    LATE_PEERS,
    LAUNCHED_ABORT,
    LAUNCHED_KILL,
    NOW,
    OWN,
    PEER_LOSS,
    held,
    judge_held,
    of_ready,
    running,
)
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_replica,
    at,
    exited,
    lost,
    ready,
)
from trainmaster.core.actions import BeginRound, Budget, RerunJob
from trainmaster.core.decisions import Reason
from trainmaster.core.events import End, ExitCause, ProgramError, ReplicaExited
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.exit_policy import ExitPolicy, Preset
from trainmaster.core.model.job import Budgets
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.rules.evidence import Rank, end_in, rank_of, round_end
from trainmaster.core.rules.judge import judge

# Evidence


@pytest.mark.parametrize(
    ("end", "rank"),
    [
        (lost(WORKER_0), Rank.MACHINE),
        (exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING), Rank.MACHINE),
        (exited(WORKER_0, cause=ExitCause.VM_RESTARTED), Rank.MACHINE),
        (exited(WORKER_0, cause=ExitCause.UNFIT), Rank.MACHINE),
        (exited(WORKER_0, 1, error=BUG), Rank.OWN),
        (exited(WORKER_0, signal=9), Rank.OWN),
        (exited(WORKER_0, 137), Rank.OWN),
        (exited(WORKER_0, 1, out_of_memory=True), Rank.OWN),
        (exited(WORKER_0, 1, error=PEER_LOSS), Rank.PEER),
        *(
            (exited(WORKER_0, 1, error=ProgramError(*error, OWN)), Rank.PEER)
            for error in LATE_PEERS
        ),
        (
            exited(
                WORKER_0, 1, error=ProgramError("ValueError", "the queue was aborted: empty", OWN)
            ),
            Rank.OWN,
        ),
        (exited(WORKER_0, signal=6, error=JAX_ABORT), Rank.PEER),
        (exited(WORKER_0, 1, error=LAUNCHED_KILL), Rank.OWN),
        (exited(WORKER_0, 1, error=LAUNCHED_ABORT), Rank.OTHER),
        (exited(WORKER_0, 1), Rank.OTHER),
        (exited(WORKER_0, 255), Rank.OTHER),
        (exited(WORKER_0, signal=6), Rank.OTHER),
        (exited(WORKER_0, 134), Rank.OTHER),
        (exited(WORKER_0, signal=9, cause=ExitCause.STALLED), Rank.OTHER),
    ],
)
def test_rank_of_an_end(end: End, rank: Rank) -> None:
    assert rank_of(end) is rank


def test_end_counts_for_the_round_that_it_ended_and_not_before_its_start() -> None:
    """`round_end` returns attempt and number of the round, the rank, and the time."""
    early = replace(exited(WORKER_0, 1, incarnation=2), at=at(-50))
    assert round_end(running(round_number=2, began_at=at(60)), early) == ("1-2", Rank.OTHER, at(60))
    state = held(round_number=3, began_at=at(60))
    assert round_end(
        state, of_ready(WORKER_0, exited(WORKER_0, 1, incarnation=2), incarnation=3)
    ) == (
        "1-2",
        Rank.OTHER,
        at(100),
    )
    assert (
        round_end(state, of_ready(WORKER_0, exited(WORKER_0, 1, incarnation=1), incarnation=3))
        is None
    )
    assert (
        round_end(state, of_ready(WORKER_0, exited(WORKER_0, 0, incarnation=2), incarnation=3))
        is None
    )
    assert round_end(state, ready(WORKER_0, incarnation=3)) is None


IN_THE_HOLD: Final = ("1-3-held", Rank.MACHINE, at(100))
"""No evidence about round 2, but that of a VM that was lost while round 3 was held."""


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        pytest.param(
            a_replica(WORKER_0, incarnation=2, ordered_at=at(10)),
            ("1-2", Rank.MACHINE, at(100)),
            id="it was in the round",
        ),
        pytest.param(
            a_replica(WORKER_0, incarnation=3, ordered_at=at(10)),
            IN_THE_HOLD,
            id="it has reported how the round ended",
        ),
        pytest.param(
            a_replica(WORKER_0, ReplicaState.REPLACING, ordered_at=at(95)),
            IN_THE_HOLD,
            id="its VM was ordered since",
        ),
        pytest.param(
            a_replica(WORKER_0, ReplicaState.WAITING, ordered_at=at(90)),
            IN_THE_HOLD,
            id="it completed, and is recalled",
        ),
    ],
)
def test_loss_while_a_round_is_held_counts_if_the_vm_was_in_the_round_before(
    worker: Replica, expected: object
) -> None:
    assert round_end(held(worker, round_number=3), lost(WORKER_0)) == expected
    rerun = held(worker, round_number=1, job=a_job(attempt=2))
    end = round_end(rerun, lost(WORKER_0))
    assert end is None or end.round == "2-1-held"


# The verdict


def test_round_begins_after_a_rerun_without_a_verdict() -> None:
    state = held(round_number=1)
    assert summarize(judge_held(state)) == "0 begin_round round_begins"


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((lost(WORKER_0),), "Round 1 ended: the VM of worker 0 was preempted. Free of charge."),
        (
            (lost(WORKER_0), exited(WORKER_1, 1, error=BUG)),
            "Round 1 ended: the VM of worker 0 was preempted. Free of charge.",
        ),
        (
            (exited(WORKER_0, cause=ExitCause.VM_RESTARTED, seconds=610),),
            "Round 1 ended: the VM of worker 0 rebooted under its program. Free of charge.",
        ),
        (
            (exited(WORKER_0, signal=15, cause=ExitCause.VM_STOPPING),),
            "Round 1 ended: the VM of worker 0 was shutting down. Free of charge.",
        ),
    ],
)
def test_machine_decides_before_any_program_and_is_free(ends: tuple[End, ...], text: str) -> None:
    decision = judge_held(held(), *ends)
    assert action_of(decision, BeginRound).charge is Budget.FREE
    assert decision.text == text


def test_own_failure_charges_one_restart_to_its_member() -> None:
    state = held()
    decision = judge_held(state, exited(WORKER_1, 1, error=BUG, ran_s=5))
    expected = (
        f"Round 1 ended: worker 1 failed first: ValueError: bad batch ({OWN}). "
        "Restart 1 of 5 of worker 1, in the same VM."
    )
    assert decision.text == expected
    begun = apply(state, evolve(state, decision, NOW))
    assert [replica.restarts_used for replica in begun.replicas] == [0, 0, 1]
    assert (begun.job.round.number, begun.job.round.is_held, begun.job.round.began_at) == (
        2,
        False,
        NOW,
    )


@pytest.mark.parametrize(
    ("event", "plan", "expected"),
    [
        (exited(WORKER_0, 1), {"disable_retries": True}, "6 fail_job retries_disabled"),
        (
            exited(WORKER_0, 1),
            {"restart_job_on_worker_restart": True},
            "10 rerun_job restart_job_on_worker_restart",
        ),
        (exited(WORKER_0, signal=9, out_of_memory=True), {}, "8 fail_job out_of_memory"),
        (exited(WORKER_0, 2), {}, "8 fail_job common_error"),
        (exited(WORKER_0, signal=11), {}, "10 begin_round non_zero_exit"),
        (exited(WORKER_0, signal=6), {}, "10 begin_round non_zero_exit"),
        (exited(WORKER_0, 1, error=PEER_LOSS), {}, "10 begin_round non_zero_exit"),
        (
            exited(WORKER_0, 1),
            {"exit_policy": ExitPolicy(Preset.SERVICE)},
            "8 fail_job common_error",
        ),
        (exited(WORKER_0, signal=15, cause=ExitCause.STALLED), {}, "10 begin_round stalled"),
    ],
)
def test_the_deciding_end_is_judged_by_the_rules_of_exits(
    event: ReplicaExited, plan: dict[str, object], expected: str
) -> None:
    assert summarize(judge_held(held(job=a_job(plan=a_plan(workers=2, **plan))), event)) == expected


def test_crash_in_a_round_restarts_all_members_like_any_other_failure() -> None:
    abort = exited(WORKER_0, signal=6)
    ends = [(abort,), (abort, exited(CHIEF, 1, error=PEER_LOSS)), (exited(WORKER_0, signal=11),)]
    decisions = [judge_held(held(), *failures) for failures in ends]
    assert {summarize(decision) for decision in decisions} == {"10 begin_round non_zero_exit"}
    assert rank_of(replace(abort, error=replace(JAX_ABORT, message="Check failed: n > 0"))) is (
        Rank.OTHER
    )


def test_spent_restarts_rerun_the_job_on_another_vm_of_the_culprit_only() -> None:
    state = held(a_replica(WORKER_0, incarnation=7, restarts_used=5), round_number=7)
    decision = judge_held(state, exited(WORKER_0, 1, incarnation=6))
    in_attempt_1 = f"1-{WORKER_0}"
    assert action_of(decision, RerunJob).lost == in_attempt_1
    assert (
        "After 5 restarts, the whole job is rerun (rerun 1 of 3), worker 0 on another VM."
        in decision.text
    )
    rerun = apply(state, evolve(state, decision, NOW))
    assert [replica.vm_generation for replica in rerun.replicas] == [1, 2, 1]
    assert (rerun.job.round.number, rerun.job.round.is_held) == (
        1,
        True,
    ), "no old program joins the new attempt"


def test_restarts_that_are_older_than_the_window_do_not_count() -> None:
    worker = a_replica(WORKER_0, incarnation=7, restarts=tuple(at(number) for number in range(5)))
    state = held(
        worker, round_number=7, job=a_job(plan=a_plan(exit_policy=ExitPolicy(window_s=98)))
    )
    decision = judge_held(state, exited(WORKER_0, 1, incarnation=6))
    assert "Restart 3 of 5" in decision.text
    begun = apply(state, evolve(state, decision, NOW))
    assert begun.replicas[1].restarts == (at(3), at(4), NOW)


def test_reboot_soon_after_the_begin_of_the_round_is_free_and_the_member_gets_another_vm() -> None:
    reboot = exited(WORKER_0, cause=ExitCause.VM_RESTARTED)
    assert summarize(judge_held(held(), replace(reboot, at=at(610)))) == (
        "4 begin_round vm_restarted"
    )
    decision = judge_held(held(), replace(reboot, at=at(609)))
    assert decision.text == (
        "Round 1 ended: the VM of worker 0 rebooted under its program. Free of charge. Round 3"
        " waits for another VM of worker 0."
    )
    following = apply(held(), evolve(held(), decision, NOW))
    assert (following.job.round.number, following.job.round.is_held) == (3, True)
    worker = following.replicas[1]
    assert (worker.vm_generation, worker.restarts_used, worker.wasted) == (2, 0, 1)


def test_third_reboot_soon_after_the_begin_of_a_round_reruns_the_job_in_the_next_zone() -> None:
    state = held(a_replica(WORKER_0, incarnation=2, wasted=2), round_number=2)
    decision = judge_held(state, exited(WORKER_0, cause=ExitCause.VM_RESTARTED))
    assert summarize(decision) == "4 rerun_job vm_restarted"
    rerun = apply(state, evolve(state, decision, NOW)).job
    assert (rerun.attempt, rerun.zone, rerun.budgets) == (2, "us-central1-b", Budgets())


def test_quick_failures_and_bugs_count_for_the_job() -> None:
    state = held(round_number=2, quick_failures=2)
    bug = exited(WORKER_0, 1, error=BUG, ran_s=5)
    begun = apply(state, evolve(state, judge_held(state, bug), NOW))
    assert begun.job.round.quick_failures == 3
    again = held(round_number=3, bug=begun.job.round.bug)
    other_member = exited(WORKER_1, 1, error=BUG, ran_s=5, incarnation=2)
    assert summarize(judge_held(again, other_member)) == "8 fail_job same_failure_again"


def test_verdict_waits_for_all_members_unless_it_ends_the_job() -> None:
    missing = a_replica(WORKER_1, ReplicaState.WAITING)
    restart = judge_held(held(missing, round_number=2), exited(WORKER_0, 1))
    assert restart.is_provisional
    out_of_memory = exited(WORKER_0, signal=9, out_of_memory=True)
    assert (
        summarize(judge_held(held(missing, round_number=2), out_of_memory))
        == "8 fail_job out_of_memory"
    )


def test_verdict_on_a_round_that_began_is_ignored() -> None:
    assert judge_held(running(round_number=2)).reason is Reason.NOTHING_TO_DO


def test_fourth_rerun_ends_the_job() -> None:
    worker = a_replica(WORKER_0, incarnation=7, restarts_used=5)
    state = held(worker, round_number=7, job=a_job(budgets=Budgets(reruns_used=3)))
    decision = judge_held(state, exited(WORKER_0, signal=11, incarnation=6))
    assert summarize(decision) == "10 fail_job reruns_spent"


def test_reboot_of_a_vm_that_was_replaced_since_does_not_count_for_its_successor() -> None:
    state = held(a_replica(WORKER_0, incarnation=2, vm_generation=2), round_number=2)
    decision = judge_held(state, exited(WORKER_0, cause=ExitCause.VM_RESTARTED))
    action = action_of(decision, BeginRound)
    assert action.charge is Budget.FREE


def test_rerun_keeps_the_vm_that_replaced_the_one_on_which_the_member_failed() -> None:
    successor = a_replica(
        WORKER_0, incarnation=7, vm_generation=2, instance_id="2002", restarts_used=5
    )
    state = held(successor, round_number=7)
    decision = judge_held(state, exited(WORKER_0, signal=11, incarnation=6))
    rerun = apply(state, evolve(state, decision, NOW))
    (worker,) = (replica for replica in rerun.replicas if replica.replica_id == WORKER_0)
    assert (worker.attempt, worker.vm_generation, worker.instance_id) == (2, 2, "2002")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (exited(CHIEF, 1, error=PEER_LOSS), "4 begin_round round_begins"),
        (exited(CHIEF, 1, error=BUG), "10 begin_round non_zero_exit"),
        (exited(CHIEF, 1), "10 begin_round non_zero_exit"),
    ],
    ids=["lost peer", "own failure", "no traceback"],
)
def test_member_that_could_not_be_set_up_again_excuses_only_those_that_lost_a_peer(
    other: ReplicaExited, expected: str
) -> None:
    """It has not reported how the round ended on its VM."""
    setup = exited(WORKER_0, cause=ExitCause.SETUP, incarnation=2, seconds=200)
    ends = sorted((setup, other), key=lambda end: (rank_of(end), end.at))
    assert summarize(judge_held(held(), *ends)) == expected


@pytest.mark.parametrize("cause", [ExitCause.UNFIT, ExitCause.SETUP])
def test_vm_given_up_in_a_hold_is_evidence_until_it_reports_how_the_round_ended(
    cause: ExitCause,
) -> None:
    event = exited(WORKER_0, cause=cause, incarnation=2, seconds=95)
    kept = a_replica(WORKER_0, ordered_at=at(10))
    end = round_end(held(kept, round_number=2), event)
    assert end is not None
    assert end.round == "1-1"
    for unrelated in (
        a_replica(WORKER_0, incarnation=2, ordered_at=at(10)),
        a_replica(WORKER_0, ReplicaState.REPLACING, vm_generation=2, ordered_at=at(95)),
    ):
        other = round_end(held(unrelated, round_number=2), event)
        assert other is not None
        assert other.round == "1-2-held"


REBOOT = exited(WORKER_0, cause=ExitCause.VM_RESTARTED, seconds=80)
GIVEN_UP = exited(WORKER_0, cause=ExitCause.SETUP, incarnation=2, seconds=95)


@pytest.mark.parametrize(
    ("ended", "rank"),
    [
        (REBOOT, Rank.MACHINE),
        (exited(WORKER_0, 1, error=BUG, seconds=80), Rank.OWN),
        (exited(WORKER_0, 1, error=PEER_LOSS, seconds=80), Rank.PEER),
    ],
    ids=["reboot", "own failure", "lost peer"],
)
def test_vm_that_cannot_be_set_up_again_tells_how_the_round_ended_on_it(
    ended: ReplicaExited, rank: Rank
) -> None:
    kept = a_replica(WORKER_0, ordered_at=at(10))
    event = replace(GIVEN_UP, ended=ended)
    end = round_end(held(kept, round_number=2), event)
    assert end is not None
    assert (end.round, end.rank, end.ended_at) == ("1-1", rank, at(80))
    assert end_in(event, end.round) == ended


@pytest.mark.parametrize(
    ("event", "replica"),
    [
        pytest.param(
            replace(GIVEN_UP, ended=REBOOT),
            a_replica(WORKER_0, incarnation=2, ordered_at=at(10)),
            id="told before",
        ),
        pytest.param(
            replace(GIVEN_UP, ended=replace(REBOOT, subject=replace(REBOOT.subject, attempt=0))),
            a_replica(WORKER_0, ordered_at=at(10)),
            id="of another attempt",
        ),
        pytest.param(
            replace(GIVEN_UP, cause=ExitCause.UNFIT, ended=exited(WORKER_0, 1, error=BUG)),
            a_replica(WORKER_0, ordered_at=at(10)),
            id="its machine has a fault",
        ),
    ],
)
def test_end_before_counts_only_for_its_round_and_not_on_a_faulty_machine(
    event: ReplicaExited, replica: Replica
) -> None:
    end = round_end(held(replica, round_number=2), event)
    assert end is not None
    assert end.ended_at == event.at
    assert end_in(event, end.round) == event


def test_exit_0_of_a_primary_whose_vm_cannot_be_set_up_again_is_success() -> None:
    setup = exited(CHIEF, cause=ExitCause.SETUP, incarnation=2, seconds=95)
    event = replace(setup, ended=exited(CHIEF, 0, seconds=80))
    assert summarize(judge(held(round_number=2), event, NOW)) == "2 succeed_job primary_exited_zero"
