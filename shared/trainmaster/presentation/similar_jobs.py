"""The job that a wrong id probably means."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from trainmaster.ports import Store

JOBS_READ: Final = 100
"""The newest jobs, among which one with a similar id is looked for."""
_SIMILAR: Final = 0.8
"""Similarity, from 0 to 1, from which an id is taken for another one, apart from its case."""


def similar_job(store: Store, wrong_id: str) -> str:
    """Return the id of a recent job that is similar, whatever its case; empty: there is none.

    `wrong_id` may be a path that ends with an id.
    """
    name = wrong_id.rstrip("/").rpartition("/")[2].casefold()
    ids = {
        job.job_id.casefold(): job.job_id
        for job in store.recent_jobs(JOBS_READ)
        if job.deleted_at is None
    }
    nearest = get_close_matches(name, ids, n=1, cutoff=_SIMILAR)
    return ids[nearest[0]] if nearest else ""
