"""The table of the agent's states, compared with the edges that the agent takes.

`ScriptedVm` runs the real agent through a history of events, such as RUN: a directive to run the
next incarnation. An incarnation is one execution of the program, and a directive is an order to the
agent: to run, to stop, or to hold, which is to set up and wait. `facts` are what the agent did, in
order. The number is an incarnation:

setup 1, process 1, ...  it reported an exit with this cause
ready 1, held 1          it reported the VM as ready; held: under a directive to hold. "held 2,
                         process 1" also says how the program before ended
start 1, end             it started the program; it ended it
preemption 1, ...        it reported a maintenance event of this kind
save together            it asked its own program to save, at the time of its peers
asks for 1               it asked the peers to save
quiet                    it stopped repeating the report that the held VM is ready
flushed, agent exits     it sent what it had, and ended
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.scripted_agent import (
    ACCEPTED,
    CANCELLED,
    DIES,
    EVENTS,
    HOLD,
    HOLD_NEXT,
    MAINTENANCE,
    PEER_ASKS,
    PREEMPTED,
    PROGRAM_ENDS,
    RUN,
    RUN_AFTER_PAUSE,
    RUN_HELD,
    SET_UP,
    SETUP_FAILS,
    SHUTDOWN,
    STOP,
    TIMER,
    ScriptedVm,
)
from trainmaster.agent.control.agent_states import EDGES, AgentState


def test_agent_takes_every_edge_of_the_table_and_no_other() -> None:
    choice = random.Random(1)  # noqa: S311 - reproducible histories, no secrets
    taken = set()
    for _ in range(1_000):
        taken |= ScriptedVm().run(*choice.choices(EVENTS, k=16)).agent.edges
    assert taken == set(EDGES)


def test_gang_that_saves_together_takes_no_other_edge() -> None:
    choice = random.Random(2)  # noqa: S311 - reproducible histories, no secrets
    taken = set()
    for _ in range(1_000):
        vm = ScriptedVm(is_gang=True).run(*choice.choices((*EVENTS, PEER_ASKS, TIMER, TIMER), k=16))
        taken |= vm.agent.edges
        asked = [fact for fact in vm.facts if fact == "save together"]
        starts = [fact for fact in vm.facts if fact.startswith("start")]
        assert len(asked) <= len(starts), "a program is asked once"
        assert not [line for line in vm.console.lines if "Unexpected" in line]
    assert taken == set(EDGES)


@pytest.mark.parametrize(
    ("history", "facts"),
    [
        pytest.param(
            (PEER_ASKS, TIMER, PROGRAM_ENDS), ["save together", "saved 1"], id="ends after it"
        ),
        pytest.param((PEER_ASKS, PROGRAM_ENDS, TIMER), ["process 1"], id="had ended before"),
        pytest.param((PEER_ASKS, TIMER, STOP), ["save together", "end"], id="the job ends"),
        pytest.param(
            (PEER_ASKS, TIMER, HOLD_NEXT, PROGRAM_ENDS, SET_UP),
            ["save together", "held 2"],
            id="held while it saves",
        ),
        pytest.param(
            (PEER_ASKS, TIMER, PROGRAM_ENDS, HOLD_NEXT, SET_UP),
            ["save together", "saved 1", "held 2, saved 1"],
            id="the end is evidence",
        ),
        pytest.param(
            (PREEMPTED, TIMER, TIMER, PROGRAM_ENDS, HOLD_NEXT),
            ["asks for 1", "save together", "preemption 1"],
            id="own VM: another one is requested, and nothing more starts here",
        ),
        pytest.param(
            (PREEMPTED, SHUTDOWN, TIMER, PROGRAM_ENDS),
            [
                "asks for 1",
                "save together",
                "preemption 1",
                "vm_stopping 1",
                "flushed",
                "agent exits",
            ],
            id="the shutdown leaves time to save",
        ),
        pytest.param(
            (MAINTENANCE, CANCELLED, TIMER, PROGRAM_ENDS),
            ["asks for 1", "save together", "saved 1"],
            id="withdrawn",
        ),
    ],
)
def test_program_of_a_gang_that_is_asked_to_save(
    history: tuple[str, ...], facts: list[str]
) -> None:
    vm = ScriptedVm(is_gang=True).run(RUN, SET_UP, *history)
    assert vm.facts == ["ready 1", "start 1", *facts]


def test_missing_edge_is_logged_and_does_not_stop_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(EDGES, (AgentState.IDLE, AgentState.SETTING_UP))
    vm = ScriptedVm().run(RUN, SET_UP)
    assert "Unexpected change of the agent's state: IDLE -> SETTING_UP." in vm.console.lines
    assert vm.facts == ["ready 1", "start 1"]


def test_program_that_a_directive_ends_is_not_reported_even_if_it_is_ordered_again() -> None:
    vm = ScriptedVm().run(RUN, SET_UP, STOP, RUN_HELD, PROGRAM_ENDS)
    assert vm.facts == ["ready 1", "start 1", "end"]


@pytest.mark.parametrize("late", [HOLD, RUN_HELD])
def test_older_directive_of_the_same_incarnation_changes_nothing(late: str) -> None:
    """Two functions may write directives in the wrong order: Cloud TPU does not detect it."""
    history = (RUN, SET_UP) if late == HOLD else (RUN, SET_UP, STOP)
    vm = ScriptedVm().run(*history)
    facts = list(vm.facts)
    vm.run(late)
    assert vm.facts == facts
    assert any("outdated" in line for line in vm.console.lines)


def test_program_that_a_directive_ends_during_a_shutdown_is_not_reported() -> None:
    expected = ["ready 1", "start 1", "end", "end", "flushed", "agent exits"]
    assert ScriptedVm().run(RUN, SET_UP, STOP, SHUTDOWN, PROGRAM_ENDS).facts == expected
    after_shutdown = ScriptedVm().run(RUN, SET_UP, SHUTDOWN, STOP, PROGRAM_ENDS)
    assert after_shutdown.facts[-3:] == ["vm_stopping 1", "flushed", "agent exits"], (
        "the shutdown ended it"
    )


def test_maintenance_before_the_first_directive_is_reported_with_it() -> None:
    assert ScriptedVm().run(MAINTENANCE, RUN).facts == ["maintenance 1"]


def test_setup_that_ends_after_the_shutdown_starts_nothing() -> None:
    assert ScriptedVm().run(RUN, SHUTDOWN, SET_UP).facts == ["flushed", "agent exits"]


def test_held_vm_sets_up_and_reports_once_that_it_could_start() -> None:
    vm = ScriptedVm().run(HOLD_NEXT, SET_UP, ACCEPTED, HOLD, RUN_HELD)
    assert vm.facts == ["held 1", "quiet", "start 1"], (
        "a vm-ready under hold is not published again"
    )


def test_start_is_reported_if_the_agent_died_before_pubsub_accepted_the_vm_ready(
    tmp_path: Path,
) -> None:
    for history, before_start in (((), "ready 1"), ((ACCEPTED,), "quiet")):
        vm = ScriptedVm(tmp_path / f"{before_start}.json").run(HOLD_NEXT, SET_UP, *history).crash()
        assert vm.run(RUN_HELD, SET_UP).facts == ["held 1", before_start, "start 1"]


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ((PROGRAM_ENDS, HOLD_NEXT), ", process 1"),
        ((DIES, HOLD_NEXT, PROGRAM_ENDS), ", process 1"),
        ((HOLD_NEXT, DIES, PROGRAM_ENDS), ""),
        ((PREEMPTED, PROGRAM_ENDS, HOLD_NEXT, TIMER), ", vm_stopping 1"),
        ((PREEMPTED, HOLD_NEXT, PROGRAM_ENDS), ""),
    ],
)
def test_end_is_evidence_exactly_if_no_directive_caused_it(
    history: tuple[str, ...], words: str
) -> None:
    for event, report in ((SET_UP, "held 2"), (SETUP_FAILS, "setup 2")):
        vm = ScriptedVm().run(RUN, SET_UP, *history, event)
        assert vm.facts[-1] == f"{report}{words}"
        assert "vm_stopping 1" not in vm.facts, "the directive supersedes the delayed report"


def test_reboot_is_reported_although_the_vm_cannot_be_set_up_again(tmp_path: Path) -> None:
    vm = ScriptedVm(tmp_path / "state.json").run(RUN, SET_UP).crash()
    assert vm.run(HOLD_NEXT, SETUP_FAILS).facts[-1] == "setup 2, vm_restarted 1"


@pytest.mark.parametrize(("left_peers", "words"), [(True, ", left peers"), (False, "")])
def test_hold_says_whether_the_ranks_of_the_ended_launcher_had_left_their_peers(
    *, left_peers: bool, words: str
) -> None:
    vm = ScriptedVm()
    vm.left_peers = left_peers
    vm.run(RUN, SET_UP, HOLD_NEXT, PROGRAM_ENDS, SET_UP)
    assert vm.facts[-1] == f"held 2{words}"
    vm.left_peers = False
    vm.run(RUN_HELD, HOLD_NEXT, PROGRAM_ENDS, SET_UP)
    assert vm.facts[-1] == "held 3"


@pytest.mark.parametrize("before_crash", [(), (PROGRAM_ENDS,), (PROGRAM_ENDS, SET_UP)])
def test_agent_that_crashes_still_says_that_the_ranks_had_left_their_peers(
    before_crash: tuple[str, ...], tmp_path: Path
) -> None:
    vm = ScriptedVm(tmp_path / "state")
    vm.left_peers = True
    vm.run(RUN, SET_UP, HOLD_NEXT, *before_crash).crash().run(SET_UP)
    assert vm.facts[-1] == "held 2, left peers"
    vm.left_peers = False
    vm.run(RUN_HELD, HOLD_NEXT, PROGRAM_ENDS).crash().run(SET_UP)
    assert vm.facts[-1] == "held 3"


def test_later_hold_still_carries_the_end_of_the_last_program() -> None:
    vm = ScriptedVm().run(RUN, SET_UP, PROGRAM_ENDS, HOLD_NEXT, SET_UP, HOLD_NEXT, SET_UP)
    assert vm.facts[-2:] == ["held 2, process 1", "held 3, process 1"]


def test_failed_setup_under_hold_is_the_exit_of_the_held_incarnation() -> None:
    assert ScriptedVm().run(HOLD_NEXT, SETUP_FAILS, RUN_HELD).facts == ["setup 1"]


def test_hold_during_a_pause_is_answered_at_once() -> None:
    vm = ScriptedVm().run(RUN_AFTER_PAUSE, SET_UP, HOLD_NEXT, SET_UP)
    assert vm.facts == ["held 2"]
