"""The service behind the function `api`, with Google's IAM behind a cache.

`functions/api` calls `service` for each request; the parts that are cached live as long as the
process.
"""

from __future__ import annotations

import time
import uuid
from functools import cache

from trainmaster.api.cached_access import CachedAccess
from trainmaster.api.quotas import Bucket
from trainmaster.api.request import LOCAL_LOG_DELAY_S, LOG_DELAY_S, Service
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.ports import Access
from trainmaster.settings import settings
from trainmaster.wiring.intake_deps import intake_deps


@cache
def access() -> Access:
    """Return what callers may do, by Google's IAM; answers are used again for a short time.

    Endpoints: those of the settings; empty: Google's own.
    """
    values = settings()
    project_access = ProjectAccess(
        values.project,
        endpoint=values.iam_endpoint,
        accounts_endpoint=values.iam_accounts_endpoint,
        people_endpoint=values.iam_people_endpoint,
        tokens_endpoint=values.iam_tokens_endpoint,
    )
    return CachedAccess(project_access, time.monotonic)


@cache
def requests() -> Bucket:
    """Return the quota of requests of this instance of the function."""
    return Bucket(settings().requests_per_minute, time.monotonic)


def service() -> Service:
    """Return what the handlers of the API use."""
    values = settings()
    return Service(
        project=values.project,
        deps=intake_deps(),
        access=access(),
        new_id=lambda: uuid.uuid4().hex,
        service_account=values.worker_service_account,
        jobs_per_minute=values.jobs_per_minute,
        log_project=values.log_project,
        log_delay_s=LOCAL_LOG_DELAY_S if values.logging_endpoint else LOG_DELAY_S,
        requests=requests(),
    )
