"""How tests of the rules state what they expect: `8 fail_job out_of_memory` is rule 8, the action
and the reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from trainmaster.core.decisions import Decision
from trainmaster.core.events import Event
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import State
from trainmaster.core.rules.judge import judge

A = TypeVar("A")

Case = tuple[State | None, Event, str]
"""Stored state, event, and the `summarize`d decision that it leads to."""


def summarize(decision: Decision) -> str:
    """Return rule number, kind of action, and reason."""
    return f"{int(decision.rule)} {decision.action.kind} {decision.reason}"


def check_case(case: Case, now: datetime) -> None:
    """Judge the case's event, compare the decision, and see that the state can evolve by it."""
    state, event, expected = case
    decision = judge(state, event, now)
    assert summarize(decision) == expected, decision.text
    assert decision.text
    evolve(state, decision, now)


def action_of(decision: Decision, kind: type[A]) -> A:
    """Return the decision's action, which must be of this class."""
    assert isinstance(decision.action, kind), decision
    return decision.action
