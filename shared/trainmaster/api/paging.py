"""Lists of jobs in pages, the newest first.

A page token is the position of the last job that was read.

Jobs are read in the one order of the store and filtered here, so that no list needs its own index.
A page whose filter accepts few jobs ends early, with a token to continue from.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC
from typing import Annotated, Final

from pydantic import AwareDatetime, Field, TypeAdapter

from trainmaster.api import errors
from trainmaster.api.errors import Json
from trainmaster.api.request import Call, Service
from trainmaster.core.model.job import Job
from trainmaster.ports import JobPosition

SIZE_DEFAULT: Final = 20
SIZE_MAX: Final = 100
"""Source of both: the discovery document of `ml` v1, `projects.jobs.list`."""
JOBS_READ_MAX: Final = 1_000
"""Jobs that one request reads; takes some seconds with Firestore."""

_TOKEN: Final = TypeAdapter(tuple[AwareDatetime, Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]])


def read_page(
    call: Call,
    service: Service,
    name: str,
    is_listed: Callable[[Job], bool],
    view: Callable[[Job], Json],
) -> Json:
    """Return the requested page: the jobs under this name, as `view` shows them.

    An empty page is `{}`, as the service sent it.
    """
    jobs, token = _read_jobs(call, service, is_listed)
    page: Json = {name: [view(job) for job in jobs]} if jobs else {}
    return {**page, "nextPageToken": token} if token else page


def _read_jobs(
    call: Call, service: Service, is_listed: Callable[[Job], bool]
) -> tuple[list[Job], str | None]:
    """Return the jobs of the requested page, and the token of the next page; None: there is none.

    Each read of the database counts as a request. Where the quota ends, so does the page.
    """
    size = _parse_size(call.param("pageSize"))
    position = _decode_token(call.param("pageToken"))
    page: list[Job] = []
    # One job more than the page has, to see whether there is a next page.
    for jobs_read in range(0, JOBS_READ_MAX, size + 1):
        is_counted = jobs_read == 0  # the handler has counted the request itself
        if not is_counted and service.requests and service.requests.take():
            break
        jobs = service.deps.store.recent_jobs(size + 1, position)
        for job in jobs:
            if is_listed(job):
                if len(page) == size:
                    return page, _encode_token(position)
                page.append(job)
            position = JobPosition(job.created_at, job.job_id)
        if len(jobs) <= size:
            return page, None
    return page, _encode_token(position)


def _parse_size(text: str) -> int:
    """Return the number of jobs of a page. Raises ApiError."""
    if not text:
        return SIZE_DEFAULT
    try:
        size = int(text)
    except ValueError:
        size = -1
    if size < 0:
        raise errors.invalid_argument("page_size", f"must be a whole number from 1 to {SIZE_MAX}")
    return min(size, SIZE_MAX) or SIZE_DEFAULT


def _encode_token(position: JobPosition | None) -> str | None:
    if position is None:
        return None
    text = json.dumps([position.created_at.astimezone(UTC).isoformat(), position.job_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode_token(token: str) -> JobPosition | None:
    if not token:
        return None
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        position = _TOKEN.validate_json(text)
    except (ValueError, binascii.Error):
        raise errors.invalid_argument(
            "page_token", "must be a nextPageToken of an earlier response"
        ) from None
    return JobPosition(*position)
