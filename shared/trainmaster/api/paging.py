"""Lists of jobs in pages, the newest first.

A page token is the position of the last job that was read.

Jobs are read in the one order of the store, from the index of one condition that the filter
requires (`list_bounds`), and the rest of the filter is applied here. A page whose filter accepts
few of them ends early, with a token to continue from.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Final

from pydantic import AwareDatetime, TypeAdapter

from trainmaster.api import errors
from trainmaster.api.errors import Json
from trainmaster.api.list_bounds import Bounds
from trainmaster.api.request import Call, Service
from trainmaster.core.model.job import Job, JobState
from trainmaster.jobspec.fields.job_id import is_stored_id
from trainmaster.ports import JobPosition

SIZE_DEFAULT: Final = 20
SIZE_MAX: Final = 100
"""Source of both: the discovery document of `ml` v1, `projects.jobs.list`."""
JOBS_READ_MAX: Final = 1_000
"""Jobs that one request reads; takes some seconds with Firestore."""
PAGE_S_MAX: Final = 5.0
"""Seconds after which a page reads no further jobs: a filter may have two hundred comparisons for
each job.
"""

_TOKEN: Final = TypeAdapter(tuple[AwareDatetime, str])
_YEARS: Final = range(1970, 2200)
"""Years that a position may have. Near the years 1 and 9999, Python's datetime overflows in
Firestore's client.
"""


@dataclass(frozen=True, slots=True)
class JobList:
    """A list of jobs as a client asks for it."""

    name: str
    """Field of the response that has the jobs."""
    states: Mapping[JobState, str]
    """The words for states in this list."""
    bounds: Bounds
    """Jobs outside are not read."""
    includes: Callable[[Job], bool]
    """Whether a job is in the list."""
    view: Callable[[Job], Json]


def read_page(call: Call, service: Service, listed: JobList) -> Json:
    """Return the requested page: the jobs as `listed.view` shows them.

    An empty page is `{}`, as AI Platform Training sent it.
    """
    jobs, token = _read_jobs(call, service, listed)
    page: Json = {listed.name: [listed.view(job) for job in jobs]} if jobs else {}
    return {**page, "nextPageToken": token} if token else page


def _read_jobs(call: Call, service: Service, listed: JobList) -> tuple[list[Job], str | None]:
    """Return the jobs of the requested page, and the token of the next page; None: there is none.

    Each read of the database counts as a request. Where the quota ends, so does the page.
    """
    size = _parse_size(call.param("pageSize"))
    position = listed.bounds.start(_decode_token(call.param("pageToken")))
    condition = listed.bounds.condition(listed.states)
    if condition is None:
        return [], None
    page: list[Job] = []
    jobs_read = 0
    latest = service.now() + timedelta(seconds=PAGE_S_MAX)
    batch = size + 1  # one job more than the page has, to see whether there is a next page
    while jobs_read < JOBS_READ_MAX and (not jobs_read or service.now() < latest):
        is_counted = jobs_read == 0  # the handler has counted the request itself
        if not is_counted and service.requests and service.requests.take():
            break
        jobs = service.deps.store.recent_jobs(batch, position, condition)
        for job in jobs:
            if job.created_at.timestamp() < listed.bounds.since_s:
                return page, None
            if listed.includes(job):
                if len(page) == size:
                    return page, _encode_token(position)
                page.append(job)
            position = JobPosition(job.created_at, job.job_id)
        if len(jobs) < batch:
            return page, None
        jobs_read += len(jobs)
        # Few queries where the filter accepts few jobs, whatever the size of the page is.
        batch = min(2 * batch, SIZE_MAX + 1, JOBS_READ_MAX - jobs_read)
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
        padding = "=" * (-len(token) % 4)  # which `_encode_token` has removed
        text = base64.b64decode(token + padding, altchars=b"-_", validate=True)
        created_at, job_id = _TOKEN.validate_json(text)
    except (ValueError, binascii.Error):
        raise _unknown_token() from None
    if created_at.year not in _YEARS or not is_stored_id(job_id):
        raise _unknown_token()
    return JobPosition(created_at, job_id)


def _unknown_token() -> errors.ApiError:
    return errors.invalid_argument("page_token", "must be a nextPageToken of an earlier response")
