"""Reporting the exit of a program that was asked to save: after the maintenance event, or when the
VM shuts down.

A `ScriptedVm` has a real agent, whose surroundings are scripted: each word of its history happens,
and each of its facts is something that the agent has done, about an incarnation (an execution of
the program) by its number. "ready", "preemption", "vm_stopping" and "saved" are its reports: the
latter two are causes of an exit. "flushed" means that all of its reports were sent.
"""

from __future__ import annotations

import pytest

from tests.support.scripted_agent import (
    CANCELLED,
    MAINTENANCE,
    PREEMPTED,
    PROGRAM_ENDS,
    RUN,
    SET_UP,
    SHUTDOWN,
    TIMER,
    ScriptedVm,
)
from trainmaster.agent.control.exit_reporter import DELAY_S

HISTORY = (RUN, SET_UP, PREEMPTED, PROGRAM_ENDS)
FACTS = ["ready 1", "start 1", "save", "preemption 1"]
"""What the agent does in that history: the report of the exit is still to come."""


def test_exit_after_preemption_is_reported_after_a_delay() -> None:
    vm = ScriptedVm().run(*HISTORY)
    assert vm.facts == FACTS
    assert [delay_s for delay_s, _ in vm.inbox.timers] == [DELAY_S]
    assert ScriptedVm().run(*HISTORY, TIMER).facts == [*FACTS, "vm_stopping 1"]


def test_exit_after_preemption_is_reported_at_once_on_shutdown() -> None:
    expected = [*FACTS, "vm_stopping 1", "flushed"]
    assert ScriptedVm().run(*HISTORY, SHUTDOWN).facts == [*expected, "agent exits"]
    vm = ScriptedVm().run(*HISTORY, SHUTDOWN, TIMER)
    assert vm.facts == [*expected, "agent exits"], (
        "the delayed report finds that the exit is reported"
    )


def test_exit_after_preemption_is_dropped_if_another_incarnation_started() -> None:
    assert ScriptedVm().run(*HISTORY, RUN, SET_UP, TIMER).facts == [*FACTS, "ready 2", "start 2"]


@pytest.mark.parametrize("order", [(SHUTDOWN, PREEMPTED), (PREEMPTED, SHUTDOWN)])
def test_exit_during_a_shutdown_is_reported_at_once(order: tuple[str, str]) -> None:
    facts = ScriptedVm().run(RUN, SET_UP, *order, PROGRAM_ENDS).facts
    assert facts[-3:] == ["vm_stopping 1", "flushed", "agent exits"]


def test_exit_soon_after_cancelled_maintenance_is_a_save() -> None:
    history = (RUN, SET_UP, MAINTENANCE, CANCELLED)
    assert ScriptedVm().run(*history, PROGRAM_ENDS).facts[-1] == "saved 1"
    again = ScriptedVm().run(*history, MAINTENANCE, PROGRAM_ENDS)
    assert again.facts[-2:] == ["save", "maintenance 1"], "announced again: the exit is delayed"
