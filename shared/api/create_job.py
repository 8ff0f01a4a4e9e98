"""A job is created: answered only when it is stored, by the same flow that a submitted message takes.

A client that sends its request again because no answer came gets the job it made; every other second create of a job
id is 409, as it was. Nothing of a refused request is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from shared.api import errors
from shared.api.quotas import MINUTE_S
from shared.api.request import Call, Service, email_of
from shared.core.model.job import Job
from shared.errors import TemporaryError
from shared.flows import submit
from shared.jobspec import accept

SOURCE: Final = "api"


def create(document: Mapping[str, object], job_id: str, call: Call, service: Service, *, default: bool = False) -> Job:
    """The stored job. `default`: `job_id` is ours, not the document's. Raises InvalidJob and ApiError."""
    submission = f"{SOURCE}:{call.key}"
    now, deps = service.now(), service.deps
    before = deps.store.load(job_id) if job_id else None
    if before and before.state.job.submission == submission:
        return before.state.job
    _within_quota(call, service)
    default_id = job_id if default else None
    _may_use(accept(document, default_job_id=default_id).plan.service_account, call, service)
    by = email_of(call, service)
    try:
        return submit.create(document, submission, now, deps, default_job_id=default_id, by=by)
    except submit.JobExistsError:
        raise errors.job_exists() from None
    except submit.OverLimitError as over:
        raise errors.quota(call.project, str(over)) from None
    except TemporaryError:
        # Stored, and only the word to provision did not get out: the sweep says it again.
        stored = deps.store.load(job_id)
        if stored and stored.state.job.submission == submission:
            return stored.state.job
        raise


def _may_use(account: str | None, call: Call, service: Service) -> None:
    """Who trains as an account has all that it has. The installation's own is everybody's, as the service's was."""
    is_own = account in (None, service.service_account)
    if account and not is_own and not service.access.may_act_as(call.token, account):
        raise errors.not_as(account)


def _within_quota(call: Call, service: Service) -> None:
    """Source: the service's quota of 60 `jobs.create` a minute. It also stops a loop that submits without end."""
    limit = service.jobs_per_minute
    if limit and service.deps.store.created_since(service.now() - timedelta(seconds=MINUTE_S)) >= limit:
        raise errors.too_often(call.project, "jobs created", limit, math.ceil(MINUTE_S / limit))
