"""A job was submitted by a message: it is accepted as a whole, or rejected with all of its
problems.

The same submission delivered twice is one job. A different submission with a used job id is
rejected. A job id may contain the time of its message (`trainmaster.core.intake.job_id_template`):
each message is then another job.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from trainmaster.core.intake.job_id_template import is_template
from trainmaster.core.model.job import Job
from trainmaster.core.rules.messages import JOB_EXISTS
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.intake import (
    JobExistsError,
    OverLimitError,
    Submission,
    check_allowed,
    create_job,
)
from trainmaster.flows.job_creation.rejections import reject_submission
from trainmaster.jobspec.accept import AcceptedSpec
from trainmaster.jobspec.job_document import job_id_of, read_document, with_time_in_job_id
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.messaging.push import Message
from trainmaster.ports import JobQueries

API_SOURCE: Final = "api:"
"""Prefix of the submissions through the API."""
RESERVED_SOURCE: Final = (
    "Field: source Error: the attribute source of a message cannot begin with api:, which marks"
    " jobs from the API."
)
NESTED_TOO_DEEPLY: Final = "Field: job Error: the document is nested too deeply"
MINUTE_S: Final = 60.0
WAIT_MAX: Final = timedelta(minutes=15)
"""How long a message waits for the quota.

The message does not identify its publisher, so that no quota can be fair: a flood delays the jobs
of others for this time. Pub/Sub delivers a message 100 times, up to a minute apart, before it
becomes a dead letter.
"""
OVERLAP: Final = "overlap"
"""Attribute of a message; with the value `FORBIDDEN`, no job is created while another one of the
same source has not ended.
"""
FORBIDDEN: Final = "forbidden"
_REDELIVERY: Final = timedelta(seconds=10)
"""A job that is older than its message by more than this is of an earlier message: clocks differ
less.
"""
MESSAGE_SOURCE: Final = "message"
"""Prefix of the submissions that are identified by their content."""


def handle(
    data: bytes,
    source: str | None,
    deps: CreationDeps,
    published_at: datetime | None = None,
    *,
    may_overlap: bool = True,
) -> None:
    """Create the job of the document `data`.

    `source` identifies the submission: an object and its generation. A direct message has none and
    is identified by its content. `published_at` is the time of the message. `may_overlap`: whether
    the job is created although another one of this source has not ended. Raises RejectedError,
    after storing the rejection, if the document is not a valid job, its id was used, or it exceeds
    the limits.
    """
    now = deps.clock()
    if source and source.startswith(API_SOURCE):
        raise reject_submission(source, None, [RESERVED_SOURCE], now, deps.store)
    submission = source or _source_of(data)
    job_id: str | None = None
    try:
        document = read_document(data, MESSAGE_SOURCE)
        job_id = job_id_of(document)  # for the rejection, if the next line refuses the template
        has_time = is_template(job_id or "")
        document = with_time_in_job_id(document, published_at)
        job_id = job_id_of(document)
        running = None if may_overlap else _find_live(submission, job_id, deps.store)
        if running:
            problem = f"{job_id} is left out: {running} of the same schedule has not ended"
            reject_submission(submission, job_id, [problem], now, deps.store)
            return
        authorize = partial(_authorize, now=now, deps=deps, published_at=published_at or now)
        job = create_job(Submission(document, submission, now, authorize), deps)
    except InvalidJob as invalid:
        problems = str(invalid).splitlines()
        raise reject_submission(submission, job_id, problems, now, deps.store) from None
    except RecursionError:
        raise reject_submission(submission, job_id, [NESTED_TOO_DEEPLY], now, deps.store) from None
    except JobExistsError:
        raise reject_submission(submission, job_id, [JOB_EXISTS], now, deps.store) from None
    except OverLimitError as over_limit:
        raise reject_submission(submission, job_id, [str(over_limit)], now, deps.store) from None
    is_new = job.created_at == now
    if has_time and not is_new and _is_older(job, published_at):
        problem = (
            f"Field: job.job_id Error: {job_id} is the job of an earlier message: a finer time,"
            " such as {time:%Y%m%d_%H%M%S}, gives each message a job of its own"
        )
        raise reject_submission(submission, job_id, [problem], now, deps.store)


def reject(data: bytes, reason: str, deps: CreationDeps) -> None:
    """Refuse data that is no message. Raises RejectedError, after storing the rejection."""
    problem = f"Field: job Error: {reason}"
    raise reject_submission(
        _source_of(data), job_id=None, problems=[problem], now=deps.clock(), store=deps.store
    )


def _source_of(data: bytes) -> str:
    """Return the source of a message that names none."""
    return f"{MESSAGE_SOURCE}:{hashlib.sha256(data).hexdigest()}"


def _is_older(job: Job, published_at: datetime | None) -> bool:
    """Whether the job existed before the message, so that the message is no redelivery."""
    return published_at is not None and published_at - job.created_at > _REDELIVERY


def _find_live(submission: str, job_id: str | None, store: JobQueries) -> str | None:
    """Return the id of another job of this submission that has not ended; None: there is none."""
    live = store.live_jobs().jobs
    return next(
        (job.job_id for job in live if job.submission == submission and job.job_id != job_id), None
    )


def _authorize(
    spec: AcceptedSpec, now: datetime, deps: CreationDeps, published_at: datetime
) -> None:
    """Raise InvalidJob for resources that a job of an unknown submitter may not name.

    Raises TemporaryError for a new job above the quota: Pub/Sub delivers it again when others have
    been created. A job that has waited for `WAIT_MAX` is created whatever the quota, so that no
    flood makes it a dead letter.
    """
    check_allowed(spec, deps.allowed)
    limit = deps.messages_per_minute
    if not limit or now - published_at >= WAIT_MAX:
        return
    created = deps.store.count_created_since(now - timedelta(seconds=MINUTE_S), through_api=False)
    if created >= limit and deps.store.load(spec.job_id or "") is None:
        raise TemporaryError(
            f"{limit} jobs were created by messages within a minute; {spec.job_id} waits"
        )


def on_message(message: Message, deps: CreationDeps) -> None:
    attributes = message.attributes
    may_overlap = attributes.get(OVERLAP) != FORBIDDEN
    source = attributes.get("source")
    handle(message.data, source, deps, message.published_at, may_overlap=may_overlap)
