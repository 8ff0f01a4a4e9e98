"""Admission of queued jobs under the project's limits: one job at a time, decided on all live jobs.

    take an admission token (with all live jobs) ──► within the limits? ──► commit PREPARING with the token
            ▲                                                                    │ another job was admitted meanwhile
            └────────────────────────────────────────────────────────────────────┘

A job that must wait stays QUEUED, and its ledger entry stays pending. Admission is tried again by every sweep, and
whenever another job ends.
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
"""Admission tokens taken before the message is left to redelivery."""

_log = logging.getLogger(__name__)


def admit(job: Job, deps: Deps) -> Wait | None:
    """Admit the job if the limits allow it. Return why it must wait, or None if it is PREPARING now.

    Raises ConflictError if other jobs were admitted in each of TRIES tries.
    """
    started = ProvisioningStarted(job.job_id, deps.clock())
    if not deps.limits:
        record(started, deps)
        return None
    for _ in range(TRIES):
        admission_token = deps.store.admission_token()
        wait = wait_of(job.job_id, admission_token.jobs, deps.limits)
        if wait is not None:
            _log.info("%s waits at position %d of the admission queue: %s", job.job_id, wait.position, wait.reason)
            return wait
        try:
            record(started, deps, admission_token=admission_token)
        except ConflictError:
            continue
        return None
    raise ConflictError(f"{job.job_id}: another job was admitted in each of {TRIES} tries; it is tried again later")


def retry_queued_jobs(deps: Deps) -> None:
    """Ask `provision` to try the admission of all queued jobs again, because a job has ended."""
    if deps.limits:
        for job in deps.store.live_jobs():
            if job.state is JobState.QUEUED:
                deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job.job_id), {})
