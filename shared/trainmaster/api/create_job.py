"""Create a job through the flow that submitted messages use.

The response is sent when the job is stored.

A client that repeats its request because it received no response gets the job that the request
created; any other second request with the same job id gets 409, as from AI Platform Training (the
service). A refused request stores nothing. One with `validateOnly=true` stores nothing either; it
is answered with the job that it would create, or with its error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from trainmaster.api import errors
from trainmaster.api.errors import Json
from trainmaster.api.quotas import MINUTE_S
from trainmaster.api.request import VALIDATE_ONLY, Call, Service, caller_email, validates_only
from trainmaster.api.resource_permissions import check_resources
from trainmaster.core.model.job import Job
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation import intake
from trainmaster.jobspec.reading.field_names import EXTENSION

SUBMISSION_PREFIX: Final = "api"
"""Start of the key that is stored with a job, and by which a repeated request finds its job."""


def create_job(
    document: Mapping[str, object],
    job_id: str,
    call: Call,
    service: Service,
    *,
    is_default_id: bool = False,
) -> Job:
    """Return the stored job, or the one that would be stored if the call only validates it.

    Raises InvalidJob and ApiError, whether the job is created or only validated.

    `job_id`: that of the document, or empty if it has no legal one. `is_default_id`: the document
    names none, and the job gets `job_id`.
    """
    key = f"{SUBMISSION_PREFIX}:{call.idempotency_key}"
    deps = service.deps
    earlier = deps.store.load(job_id) if job_id else None
    if earlier and earlier.state.job.submission == key:
        return earlier.state.job
    caller = caller_email(call, service)
    creates = not validates_only(call.request)
    if creates:
        _check_quota(call, service, caller or "")
    submission = intake.Submission(
        document,
        key,
        service.now(),
        authorize=lambda spec: check_resources(spec.resources, call, service),
        origin=intake.Origin(through_api=True, submitted_by=caller),
        default_job_id=job_id if is_default_id else None,
    )
    try:
        accept = intake.create_job if creates else intake.validated_job
        return accept(submission, deps)
    except intake.JobExistsError:
        raise errors.job_exists() from None
    except intake.OverLimitError as over_limit:
        raise errors.quota_exceeded(call.project, str(over_limit)) from None
    except TemporaryError:
        # The job may be stored without the message to `provision`. The sweep, which runs every
        # minute, then sends it.
        stored = deps.store.load(job_id)
        if stored and stored.state.job.submission == key:
            return stored.state.job
        raise


def with_notes(view: Json, job: Job, call: Call) -> Json:
    """Return the view of a job.

    If the call only validates the job, the view also has the substitutions that the job would get.
    """
    if not validates_only(call.request):
        return view
    notes = [asdict(substitution) for substitution in job.plan.origin.substitutions]
    return {**view, EXTENSION: {VALIDATE_ONLY: True, "substitutions": notes}}


def _check_quota(call: Call, service: Service, caller: str) -> None:
    """Raise ApiError if the quota of creations is used up, and the caller's own share of it too.

    It also stops a client that submits in a loop.

    Source: AI Platform Training's quota of 60 `jobs.create` per minute.
    """
    limit = service.jobs_per_minute
    if not limit or service.shares.take(caller, limit) == 0:
        return
    since = service.now() - timedelta(seconds=MINUTE_S)
    if service.deps.store.count_created_since(since, through_api=True) >= limit:
        raise errors.rate_limited(call.project, "jobs created", limit, math.ceil(MINUTE_S / limit))
