"""What a user does about the failure of a job: by the error, the runtime and the way of submission.

Where nothing more precise is known (`core.rules.remedies`), it is the advice of the decision's
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.core.decisions import Reason
from trainmaster.core.events import Event, ReplicaExited
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.reporting.explain import final_entry, final_exit
from trainmaster.core.rules.messages import summary
from trainmaster.core.rules.remedies import remedy_of_exit
from trainmaster.presentation.reasons import help_on, without_links


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a job ended without success, and what its user does about it."""

    reason: Reason
    remedy: str
    """Empty if nothing is known."""

    @property
    def advice(self) -> str:
        """What to do, and which command explains the reason."""
        text = self.remedy or without_links(help_on(self.reason).means)
        return f"{text} More: `trainmaster why --reason {self.reason}`"

    def view(self) -> dict[str, str]:
        """Return the ending as JSON."""
        what_to_do = {"whatToDo": self.remedy} if self.remedy else {}
        return {"reason": self.reason.value, **what_to_do}


def ending_of(job: Job, entries: Sequence[LedgerEntry]) -> Ending | None:
    """Return how a job ended; None if it runs, has succeeded, or if its ledger has expired."""
    final = final_entry(job, entries) if job.error_message else None
    if final is None:
        return None
    event = final_exit(job, entries) or final.event
    reason = final.decision.reason
    return Ending(reason, remedy(reason, event, job.plan))


def headline(job: Job, ending: Ending | None) -> str:
    """Return what ended a job, and its cause, in one line, without what to do about it.

    Empty if it runs or has succeeded.
    """
    text = summary(job.error_message or "")
    # The error message of some reasons ends with the remedy.
    return text.removesuffix(ending.remedy).rstrip() if ending else text


def remedy(reason: Reason, event: Event, plan: Plan) -> str:
    """Return what to do about a job that ended for the reason; empty if nothing is known.

    `event`: the one that ended it.
    """
    exact = remedy_of_exit(event, plan) if isinstance(event, ReplicaExited) else ""
    return exact or without_links(help_on(reason).do)
