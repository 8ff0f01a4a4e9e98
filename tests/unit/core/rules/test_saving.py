"""Save together: a notice lets all members save, and the end of a program that was asked to save is
free.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from tests.support.decisions import action_of, summarize
from tests.support.jobs import (
    CHIEF,
    WORKER_0,
    WORKER_1,
    a_job,
    a_plan,
    a_state,
    an_incarnation,
    at,
    exited,
    lost,
)
from trainmaster.core.actions import BeginRound, Budget, SaveRound, StopRound
from trainmaster.core.events import AllReady, ExitCause, ProgramError, VmNoticed
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import State
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round, Saving
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.vm import DirectiveAction
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.rules.evidence import Rank, rank_of
from trainmaster.core.rules.judge import judge
from trainmaster.core.transitions.change import Effect

NOW: Final = at(100)
GANG: Final = a_plan(on_notice=SaveOnNotice.GANG)
BUG: Final = ProgramError(
    "ValueError", "bad batch", "trainer/task.py:7 in main", "trainer/task.py:7 in main"
)


def running(number: int = 1, plan: Plan = GANG, **fields: object) -> State:
    state = a_state(job=a_job(plan=plan, round=replace(Round(number, began_at=at(10)), **fields)))  # type: ignore[arg-type]
    return replace(
        state, replicas=tuple(replace(replica, incarnation=number) for replica in state.replicas)
    )


def noticed(
    replica_id: ReplicaId, incarnation: int = 1, silent: tuple[int, ...] = (), seconds: float = 130
) -> VmNoticed:
    return VmNoticed(an_incarnation(replica_id, incarnation), NOW, at(seconds), silent)


def after(state: State, event: VmNoticed) -> State:
    return apply(state, evolve(state, judge(state, event, NOW), NOW))


def test_notice_is_one_write_and_no_request_if_all_peers_answered() -> None:
    state = running()
    decision = judge(state, noticed(WORKER_1), NOW)
    assert summarize(decision) == "4 save_round members_save"
    assert action_of(decision, SaveRound).saving == Saving(WORKER_1, NOW, at(130))
    change = evolve(state, decision, NOW)
    assert (change.replicas, change.effects) == ((), ())
    assert "worker 1" in decision.text


def test_peers_that_did_not_answer_are_directed_to_save_and_no_other() -> None:
    event = noticed(WORKER_1, silent=(1, 7, 1))
    state = running()
    assert evolve(state, judge(state, event, NOW), NOW).effects == (Effect.PROVISION,)
    directives = {
        vm.replica.replica_id: vm.directive
        for vm in desired_vms(after(state, event).job, state.replicas)
    }
    assert directives[WORKER_0].action is DirectiveAction.SAVE
    assert directives[WORKER_0].to_metadata()["gives_up_at"] == int(at(130).timestamp())
    assert {directives[CHIEF].action, directives[WORKER_1].action} == {DirectiveAction.RUN}
    run = replace(directives[WORKER_0], action=DirectiveAction.RUN)
    assert (
        run.order
        < directives[WORKER_0].order
        < replace(run, incarnation=2, action=DirectiveAction.HOLD).order
    )


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        pytest.param(
            running(plan=a_plan()),
            noticed(WORKER_1),
            "nothing_to_do",
            id="the job does not save together",
        ),
        pytest.param(running(2, is_held=True), noticed(WORKER_1, 2), "round_ended", id="held"),
        pytest.param(running(2), noticed(WORKER_1, 1), "round_ended", id="of an older round"),
        pytest.param(running(2), noticed(WORKER_1, 3), "unknown_incarnation", id="of no round"),
        pytest.param(
            running(saving=Saving(WORKER_0, at(90), at(120))),
            noticed(WORKER_1),
            "round_ended",
            id="second",
        ),
    ],
)
def test_notice_that_changes_nothing_is_ignored(
    state: State, event: VmNoticed, expected: str
) -> None:
    assert judge(state, event, NOW).reason == expected


def test_notice_long_after_a_withdrawn_one_asks_again() -> None:
    state = running(saving=Saving(WORKER_0, NOW - timedelta(minutes=10), at(0)))
    assert summarize(judge(state, noticed(WORKER_1), NOW)) == "4 save_round members_save"


@pytest.mark.parametrize("status", [0, 1, 143])
@pytest.mark.parametrize("who", [CHIEF, WORKER_0])
def test_program_that_ends_after_the_request_completes_nothing_and_charges_nothing(
    status: int, who: ReplicaId
) -> None:
    state = after(running(), noticed(WORKER_1))
    event = exited(who, status, cause=ExitCause.SAVED, error=BUG if status else None)
    decision = judge(state, event, NOW)
    assert summarize(decision) == "4 stop_round saved"
    assert action_of(decision, StopRound).replacement is None
    held = apply(state, evolve(state, decision, NOW))
    assert held.job.round == Round(2, is_held=True, began_at=at(10), ordered_at=NOW, stopped_by=who)
    assert rank_of(event) is Rank.MACHINE


def test_verdict_is_free_although_a_peer_failed_first_because_the_others_had_left() -> None:
    state = running(2, is_held=True, ordered_at=at(90))
    failed, saved = exited(WORKER_0, 1, error=BUG), exited(WORKER_1, 0, cause=ExitCause.SAVED)
    verdict = judge(state, AllReady("digits_1", 1, NOW, 2, (saved, failed)), NOW)
    assert action_of(verdict, BeginRound).charge is Budget.FREE
    assert (
        verdict.text
        == "Round 1 ended: worker 1 ended after all members were asked to save. Free of charge."
    )


def test_loss_of_the_vm_ends_the_round_in_which_all_save() -> None:
    state = after(running(), noticed(WORKER_1))
    decision = judge(state, lost(WORKER_1), NOW)
    assert summarize(decision) == "4 stop_round preemption"
    assert apply(state, evolve(state, decision, NOW)).job.round.saving is None
