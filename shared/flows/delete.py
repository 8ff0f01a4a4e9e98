"""A user deletes a job that has ended: it is no longer listed. Its id is used up and its history is kept."""

from __future__ import annotations

from shared.core.decisions import Reason
from shared.core.events import DeleteRequested
from shared.flows.record import Deps, record


def handle(job_id: str, change: str, deps: Deps) -> bool:
    """False: the job has not ended. Safe to repeat. Raises PermanentError where there is no such job."""
    recorded = record(job_id, DeleteRequested(job_id, change, deps.clock()), deps)
    return recorded.entry.decision.reason is not Reason.NOT_ENDED
