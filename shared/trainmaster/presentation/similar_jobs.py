"""The job that a wrong id probably means."""

from __future__ import annotations

from trainmaster.ports import Store
from trainmaster.presentation.similar_ids import JOBS_READ, nearest_id


def similar_job(store: Store, wrong_id: str) -> str:
    """Return the id of a recent job that is similar, whatever its case; empty: there is none.

    `wrong_id` may be a path that ends with an id.
    """
    jobs = store.recent_jobs(JOBS_READ)
    return nearest_id(wrong_id, [job.job_id for job in jobs if job.deleted_at is None])
