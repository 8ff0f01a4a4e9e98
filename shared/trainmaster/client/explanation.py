"""The explanation of a job: what was decided about it, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, as the ledger has it."""

    time: datetime
    text: str
    rule: int | None
    """Number of the rule in docs/rules.md. None: the decision follows from no numbered rule."""
    replica: str | None
    """The replica that the decision is about, such as `worker-0`. None: the whole job."""
    attempt: int
    document: Mapping[str, Any]
    """The complete answer of the API: also the action and the budgets before and after."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Failures in a row of a job that runs, from the second one."""

    failures: int
    last_failure: str
    """The last failure in one line: `FileNotFoundError: ... (train.py:18)`."""
    since: datetime
    """When the first failure was decided about."""
    failures_left: int | None
    """After how many more failures the job is FAILED, at most; None: unknown."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `trainmaster why` prints, as values."""

    state: str
    """QUEUED, PREPARING, RUNNING, SUCCEEDED, FAILED or CANCELLED."""
    decisions: tuple[Decision, ...]
    """In the order in which they were made, without ignored events."""
    next_steps: tuple[str, ...]
    """One sentence for each thing that the job waits for; empty: it has ended."""
    failing: Failing | None = None
    """Set if the job keeps failing."""
    notes: tuple[str, ...] = ()
    """Reasons to doubt the success of the job."""
    error: str = ""
    """What ended the job, in one line; empty if it runs or has succeeded."""
    what_to_do: str = ""
    """What to do about the end of the job; empty if nothing is known."""

    def __str__(self) -> str:
        lines = [
            f"{decision.time:%H:%M:%S}  {decision.text}{_rule(decision)}"
            for decision in self.decisions
        ]
        notes = f", but: {'; '.join(self.notes)}" if self.notes else ""
        lines.append(f"Now: {self.state}{notes}.")
        if self.error:
            lines.append(f"Error: {self.error}")
        if self.failing is not None:
            row = self.failing
            lines.append(f"Failing: {row.failures} in a row, last {row.last_failure}.")
        lines += [f"Next: {step}" for step in self.next_steps]
        if self.what_to_do:
            lines.append(f"What to do: {self.what_to_do}")
        return "\n".join(lines)


def _rule(decision: Decision) -> str:
    return f"  [rule {decision.rule}]" if decision.rule else ""


def explanation_of(document: Mapping[str, Any]) -> Explanation:
    """Return the explanation in an answer of the API."""
    return Explanation(
        document["state"],
        tuple(map(_decision, document["decisions"])),
        tuple(document["nextSteps"]),
        _failing(document["failing"]) if "failing" in document else None,
        tuple(document.get("notes", ())),
        document.get("error", ""),
        document.get("whatToDo", ""),
    )


def _failing(document: Mapping[str, Any]) -> Failing:
    return Failing(
        document["failures"],
        document["lastFailure"],
        datetime.fromisoformat(document["since"]),
        document.get("failuresLeft"),
    )


def _decision(document: Mapping[str, Any]) -> Decision:
    return Decision(
        time=datetime.fromisoformat(document["time"]),
        text=document["text"],
        rule=document.get("rule"),
        replica=document.get("replica"),
        attempt=document["attempt"],
        document=document,
    )
