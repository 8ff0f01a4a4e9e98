"""Save together: after the notice that one VM of a gang goes, all members are asked to save. The
end of a program that was asked to save uses no budget of restarts.

A gang is the members of a job that train and restart together. A round is one common start of them.

Decisions are written as the number of the rule, the action and the reason:
`4 save_round members_save`.

An incarnation is one execution of a replica's program. A directive is an order to the agent of a
VM: to run the program, to hold, or to stop.
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
from trainmaster.core.decisions import Reason
from trainmaster.core.events import (
    AllReady,
    ExitCause,
    MembersJoin,
    ProgramError,
    SaveOver,
    VmNoticed,
)
from trainmaster.core.evolve import apply, evolve
from trainmaster.core.model.job import State
from trainmaster.core.model.plan import Elastic, Plan
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.round import Round, SaveCause, SaveRequest
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.reconcile.desired import desired_vms
from trainmaster.core.rules.evidence import Rank, rank_of
from trainmaster.core.rules.judge import judge
from trainmaster.core.timeouts import SAVE_MAX
from trainmaster.core.transitions.change import Effect

NOW: Final = at(100)
GANG: Final = a_plan(on_notice=SaveOnNotice.GANG)
BUG: Final = ProgramError(
    "ValueError", "bad batch", "trainer/task.py:7 in main", "trainer/task.py:7 in main"
)


def running(*, round_number: int = 1, plan: Plan = GANG, **fields: object) -> State:
    """Return a job whose round of this number runs."""
    round_ = replace(Round(round_number, began_at=at(10)), **fields)  # type: ignore[arg-type]
    state = a_state(job=a_job(plan=plan, round=round_))
    replicas = tuple(replace(replica, incarnation=round_number) for replica in state.replicas)
    return replace(state, replicas=replicas)


def noticed(
    replica_id: ReplicaId,
    *,
    incarnation: int = 1,
    silent: tuple[int, ...] = (),
    seconds: float = 130,
    number: int = 1,
) -> VmNoticed:
    """Return the notice that the replica's VM goes.

    `number`: that of its request to save; `silent`: numbers of the members that did not answer the
    request; `seconds`: when the save must have ended, after `START`.
    """
    return VmNoticed(an_incarnation(replica_id, incarnation), NOW, at(seconds), number, silent)


def asked(
    *,
    number: int = 1,
    ago: timedelta = timedelta(seconds=10),
    why: SaveCause = SaveCause.NOTICE,
    replicas: tuple[ReplicaId, ...] = (),
) -> SaveRequest:
    """Return a request to save that was recorded `ago` before `NOW`."""
    return SaveRequest(number, NOW - ago, at(160), why, replicas)


def directive_of(state: State, replica_id: ReplicaId) -> Directive:
    vms = desired_vms(state.job, state.replicas, NOW)
    return next(vm.directive for vm in vms if vm.replica.replica_id == replica_id)


def after(state: State, event: VmNoticed) -> State:
    """Return the state after what the rules decide about the event."""
    return apply(state, evolve(state, judge(state, event, NOW), NOW))


def test_notice_is_one_write_and_no_request_if_all_peers_answered() -> None:
    state = running()
    decision = judge(state, noticed(WORKER_1), NOW)
    assert summarize(decision) == "4 save_round members_save"
    assert action_of(decision, SaveRound).saving == SaveRequest(1, NOW, at(130), SaveCause.NOTICE)
    change = evolve(state, decision, NOW)
    assert (change.replicas, change.effects) == ((), ())
    assert "worker 1" in decision.text


@pytest.mark.parametrize(("after_s", "is_asked"), [(129, True), (130, True), (131, False)])
def test_no_directive_asks_to_save_when_the_vm_with_the_notice_is_given_up(
    after_s: float, *, is_asked: bool
) -> None:
    """A delivery may hold a state whose round has ended: the next directive stops the program."""
    state = after(running(), noticed(WORKER_1, silent=(1,)))
    vms = desired_vms(state.job, state.replicas, at(after_s))
    asked = {vm.replica.replica_id for vm in vms if vm.directive.action is DirectiveAction.SAVE}
    assert asked == ({WORKER_0} if is_asked else set())


def test_peers_that_did_not_answer_are_directed_to_save_and_no_other() -> None:
    event = noticed(WORKER_1, silent=(1, 7, 1))
    state = running()
    assert evolve(state, judge(state, event, NOW), NOW).effects == (Effect.PROVISION,)
    directives = {
        vm.replica.replica_id: vm.directive
        for vm in desired_vms(after(state, event).job, state.replicas, NOW)
    }
    assert directives[WORKER_0].action is DirectiveAction.SAVE
    assert directives[WORKER_0].to_metadata()["until"] == int(at(130).timestamp())
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
        pytest.param(
            running(round_number=2, is_held=True),
            noticed(WORKER_1, incarnation=2),
            "provisional",
            id="held",
        ),
        pytest.param(
            running(round_number=2),
            noticed(WORKER_1, incarnation=1),
            "provisional",
            id="of an older round",
        ),
        pytest.param(
            running(round_number=2),
            noticed(WORKER_1, incarnation=3),
            "provisional",
            id="of no round",
        ),
        pytest.param(
            running(saving=asked()),
            noticed(WORKER_1),
            "nothing_to_do",
            id="second",
        ),
    ],
)
def test_notice_that_changes_nothing_is_ignored(
    state: State, event: VmNoticed, expected: str
) -> None:
    assert judge(state, event, NOW).reason == expected


LONG_AGO: Final = timedelta(minutes=10)


@pytest.mark.parametrize("why", [SaveCause.NOTICE, SaveCause.GROWTH])
def test_notice_long_after_another_request_is_a_request_of_its_own(why: SaveCause) -> None:
    state = running(saving=asked(number=1, ago=LONG_AGO, why=why))
    decision = judge(state, noticed(WORKER_1, number=2, silent=(0,)), NOW)
    assert summarize(decision) == "4 save_round members_save"
    saving = action_of(decision, SaveRound).saving
    assert saving == SaveRequest(2, NOW, at(130), SaveCause.NOTICE, (CHIEF,))


def test_second_notice_reaches_a_member_that_a_directive_asked_before() -> None:
    """The first notice was withdrawn, and the program saved and went on. No datagram reaches it."""
    state = running(saving=asked(number=1, ago=LONG_AGO, replicas=(WORKER_0,)))
    first = directive_of(state, WORKER_0)
    second = directive_of(after(state, noticed(WORKER_1, number=2, silent=(1,))), WORKER_0)
    assert (first.save_number, second.save_number) == (1, 2)
    assert first.order < second.order
    assert second.action is DirectiveAction.SAVE


def test_notice_under_a_number_that_is_long_past_lets_directives_ask_all_members() -> None:
    """The agents ignored it: all have acted upon this number before."""
    state = running(saving=asked(number=3, ago=LONG_AGO))
    decision = judge(state, noticed(WORKER_1, number=3), NOW)
    saving = action_of(decision, SaveRound).saving
    assert (saving.number, set(saving.asked)) == (4, {CHIEF, WORKER_0, WORKER_1})


@pytest.mark.parametrize("why", list(SaveCause))
def test_notice_soon_after_another_request_joins_it(why: SaveCause) -> None:
    state = running(saving=asked(number=2, why=why, replicas=(CHIEF,)))
    assert judge(state, noticed(WORKER_1, number=2), NOW).reason is Reason.NOTHING_TO_DO
    decision = judge(state, noticed(WORKER_1, number=2, silent=(0, 1)), NOW)
    saving = action_of(decision, SaveRound).saving
    until = at(130) if why is SaveCause.NOTICE else at(160)
    assert saving == replace(asked(number=2, why=why), until=until, asked=(CHIEF, WORKER_0))
    assert decision.text == "Directives ask worker 0 to save, too."


@pytest.mark.parametrize("number", [1, 2, 7])
def test_notice_never_replaces_the_request_after_which_the_job_ends(number: int) -> None:
    state = running(saving=asked(number=2, ago=LONG_AGO, why=SaveCause.CAP))
    held = after(state, noticed(WORKER_1, number=number, silent=(0,)))
    saving = held.job.round.saving
    assert saving is not None
    assert (saving.why, saving.number) == (SaveCause.CAP, max(number, 2))


def test_growth_waits_for_another_request_and_ends_the_round_at_its_end() -> None:
    state = running(
        round_number=2,
        plan=a_plan(on_notice=SaveOnNotice.GANG, elastic=Elastic(2)),
        without=(WORKER_1,),
    )
    joins = MembersJoin("digits_1", 1, 2, 1, NOW)
    requested = judge(state, joins, NOW)
    assert requested.text.endswith(
        f"or at {NOW + SAVE_MAX:%H:%M:%S}: a program that does not catch SIGTERM runs until then,"
        " and repeats what it did since its last checkpoint."
    )
    asking = apply(state, evolve(state, requested, NOW))
    saving = asking.job.round.saving
    assert saving == SaveRequest(1, NOW, NOW + SAVE_MAX, SaveCause.GROWTH, (CHIEF,))
    directive = directive_of(asking, CHIEF)
    assert (directive.action, directive.asks_peers) == (DirectiveAction.SAVE, True)
    over = SaveOver("digits_1", attempt=1, round=2, number=1, replica_id=CHIEF, at=NOW)
    assert judge(asking, over, NOW).is_provisional
    decision = judge(asking, over, NOW + SAVE_MAX)
    assert summarize(decision) == "7 stop_round saved"
    assert decision.text.endswith(
        "Programs that do not catch SIGTERM were not asked to save, and repeat what they did since"
        " their last checkpoint. Free of charge."
    )
    assert rank_of(over) is Rank.MACHINE
    stopped = apply(asking, evolve(asking, decision, NOW + SAVE_MAX))
    assert (stopped.job.round.is_held, stopped.job.round.saving) == (True, None)
    late = judge(stopped, over, NOW + SAVE_MAX)
    assert late.reason is Reason.NOTHING_TO_DO


def test_peer_that_fails_as_the_others_are_stopped_for_a_growth_pays_nothing() -> None:
    """Its program was not asked to save, and its directive comes last."""
    state = running(round_number=3, is_held=True, ordered_at=at(90))
    over = SaveOver("digits_1", attempt=1, round=2, number=1, replica_id=CHIEF, at=at(90))
    failed = exited(WORKER_0, 1, error=replace(BUG, type="UnavailableError"), incarnation=2)
    verdict = judge(state, AllReady("digits_1", 1, NOW, 3, (over, failed)), NOW)
    assert action_of(verdict, BeginRound).charge is Budget.FREE


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
    state = running(round_number=2, is_held=True, ordered_at=at(90))
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
