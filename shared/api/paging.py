"""Lists of jobs in pages, the youngest first. A token names the place of the last job that was looked at.

Jobs are looked through in the store's one order and filtered here, so that no list needs an index of its own; a page
whose filter finds little ends early, with a token to go on from.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, TypeAdapter

from shared.api import errors
from shared.api.request import Call
from shared.core.model.job import Job
from shared.ports import JobPlace, Store

SIZE_DEFAULT: Final = 20
SIZE_MAX: Final = 100
"""Both from the discovery document of `ml` v1, `projects.jobs.list`."""
LOOKED_AT_MAX: Final = 1_000
"""By one request: some seconds of reading from Firestore."""

_Token: Final = TypeAdapter(tuple[AwareDatetime, Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]])


def page(call: Call, store: Store, desired: Callable[[Job], bool]) -> tuple[list[Job], str | None]:
    """The jobs of the page that the call asks for, and the token of the next one."""
    size, place = _size(call.param("pageSize")), _place(call.param("pageToken"))
    found: list[Job] = []
    for _ in range(0, LOOKED_AT_MAX, size + 1):
        jobs = store.recent_jobs(size + 1, place)
        for job in jobs:
            if desired(job):
                if len(found) == size:
                    return found, _token(place)
                found.append(job)
            place = JobPlace(job.created_at, job.job_id)
        if len(jobs) <= size:
            return found, None
    return found, _token(place)


def _size(given: str) -> int:
    if not given:
        return SIZE_DEFAULT
    try:
        size = int(given)
    except ValueError:
        size = -1
    if size < 0:
        raise errors.invalid("page_size", f"must be a whole number from 1 to {SIZE_MAX}")
    return min(size, SIZE_MAX) or SIZE_DEFAULT


def _token(place: JobPlace | None) -> str | None:
    if place is None:
        return None
    said = json.dumps([place.created_at.astimezone(UTC).isoformat(), place.job_id])
    return base64.urlsafe_b64encode(said.encode()).decode().rstrip("=")


def _place(token: str) -> JobPlace | None:
    if not token:
        return None
    try:
        said = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        place = _Token.validate_json(said)
    except (ValueError, binascii.Error):
        raise errors.invalid("page_token", "is not one that a list answered") from None
    return JobPlace(*place)
