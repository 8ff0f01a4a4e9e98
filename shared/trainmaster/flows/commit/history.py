"""The history of deleted jobs: kept for a time, and then deleted by the store."""

from __future__ import annotations

from trainmaster.core.model.job import Job
from trainmaster.core.timeouts import HISTORY_KEPT
from trainmaster.ports import States


def expire_history(job: Job, store: States) -> None:
    """Let the history of a deleted job be deleted later. Does nothing for any other job.

    The entry of the deletion is pending until this has happened, so it happens at least once.
    """
    if job.deleted_at is not None:
        store.expire_history(job.job_id, job.deleted_at + HISTORY_KEPT)
