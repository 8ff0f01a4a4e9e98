"""The job that a wrong id probably means."""

from __future__ import annotations

from collections.abc import Iterable
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
    jobs = store.recent_jobs(JOBS_READ)
    return nearest_id(wrong_id, [job.job_id for job in jobs if job.deleted_at is None])


def nearest_id(wrong_id: str, ids: Iterable[str]) -> str:
    """Return the id that is similar to another one or to the end of a path, whatever its case;
    empty: there is none.
    """
    name = wrong_id.rstrip("/").rpartition("/")[2].casefold()
    known = {job_id.casefold(): job_id for job_id in ids}
    nearest = get_close_matches(name, known, n=1, cutoff=_SIMILAR)
    return known[nearest[0]] if nearest else ""
