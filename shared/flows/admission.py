"""Jobs start one at a time where the project has limits: who may start is decided on all jobs that have not ended.

    take a turn (all live jobs, and a token) ──► room? ──► commit PREPARING on that token
            ▲                                                    │ somebody else was admitted meanwhile
            └────────────────────────────────────────────────────┘

A job that has to wait stays QUEUED with its effect pending: the sweep asks again every minute, and so does the end of
every other job.
"""

from __future__ import annotations

import logging
from typing import Final

from shared.core.events import ProvisioningStarted
from shared.core.model.job import Job, JobState
from shared.core.rules.admission_queue import Wait, wait_of
from shared.errors import ConflictError
from shared.flows.record import Deps, record
from shared.messaging import internal_requests, topics

TRIES: Final = 5

_log = logging.getLogger(__name__)


def admit(job: Job, deps: Deps) -> Wait | None:
    """None: the job is PREPARING, by this call or before. ConflictError: others were admitted in every turn taken."""
    started = ProvisioningStarted(job.job_id, deps.clock())
    if not deps.limits:
        record(job.job_id, started, deps)
        return None
    for _ in range(TRIES):
        admission_token = deps.store.admission_token()
        wait = wait_of(job.job_id, admission_token.jobs, deps.limits)
        if wait is not None:
            _log.info("%s waits, %d in line: %s", job.job_id, wait.position, wait.reason)
            return wait
        try:
            record(job.job_id, started, deps, admission_token=admission_token)
        except ConflictError:
            continue
        return None
    raise ConflictError(f"{job.job_id}: others were admitted in each of {TRIES} turns")


def wake(deps: Deps) -> None:
    """A job has ended: those that wait may look again."""
    if deps.limits:
        for job in deps.store.live_jobs():
            if job.state is JobState.QUEUED:
                deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job.job_id), {})
