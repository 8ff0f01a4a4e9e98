"""The table of the agent's states, compared with the edges that the agent takes."""

from __future__ import annotations

import random

import pytest

from tests.support.scripted_agent import (
    EVENTS,
    HOLD,
    MAINTENANCE,
    PROGRAM_ENDS,
    RUN,
    RUN_HELD,
    SET_UP,
    SHUTDOWN,
    ScriptedVm,
)
from trainmaster.agent.control.agent_states import EDGES, AgentState


def test_agent_takes_every_edge_of_the_table_and_no_other() -> None:
    choice = random.Random(1)  # noqa: S311 - reproducible histories, no secrets
    taken = set()
    for _ in range(3_000):
        taken |= ScriptedVm().run(*choice.choices(EVENTS, k=16)).agent.edges
    assert taken == set(EDGES)


def test_missing_edge_is_logged_and_does_not_stop_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EDGES, (AgentState.IDLE, AgentState.SETTING_UP))
    vm = ScriptedVm().run(RUN, SET_UP)
    assert "Unexpected change of the agent's state: IDLE -> SETTING_UP." in vm.console.lines
    assert vm.facts == ["ready 1", "start 1"]


def test_program_that_a_directive_ends_is_not_reported_even_if_it_is_ordered_again() -> None:
    vm = ScriptedVm().run(RUN, SET_UP, HOLD, RUN_HELD, PROGRAM_ENDS)
    assert vm.facts == ["ready 1", "start 1", "end", "end"]


def test_program_that_a_directive_ends_during_a_shutdown_is_not_reported() -> None:
    expected = ["ready 1", "start 1", "end", "end", "flushed", "agent exits"]
    for history in ((SHUTDOWN, HOLD), (HOLD, SHUTDOWN)):
        assert ScriptedVm().run(RUN, SET_UP, *history, PROGRAM_ENDS).facts == expected


def test_maintenance_before_the_first_directive_is_reported_with_it() -> None:
    assert ScriptedVm().run(MAINTENANCE, RUN).facts == ["maintenance 1"]


def test_setup_that_ends_after_the_shutdown_starts_nothing() -> None:
    assert ScriptedVm().run(RUN, SHUTDOWN, SET_UP).facts == ["flushed", "agent exits"]
