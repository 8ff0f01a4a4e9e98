"""The id that a wrong one probably means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

JOBS_READ: Final = 100
"""The newest jobs, among which one with a similar id is looked for."""
_SIMILAR: Final = 0.8
"""Similarity, from 0 to 1, from which an id is taken for another one, apart from its case."""


def nearest_id(wrong_id: str, ids: Iterable[str]) -> str:
    """Return the id that is similar to another one or to the end of a path, whatever its case;
    empty: there is none.
    """
    name = wrong_id.rstrip("/").rpartition("/")[2].casefold()
    known = {job_id.casefold(): job_id for job_id in ids}
    nearest = get_close_matches(name, known, n=1, cutoff=_SIMILAR)
    return known[nearest[0]] if nearest else ""
