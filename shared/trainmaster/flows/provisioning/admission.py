"""Admission of queued jobs under the project's limits, in passes.

    take the admission token (with all live jobs)
            ▲   └──► for each job that fits, in the order of the queue:
            │        commit PREPARING with the token, and request its VMs
            └── another pass admitted a job meanwhile ──┘

A pass reads the live jobs once, whatever the number of queued jobs, and stores the queue that it
leaves. It runs when a job is submitted, when a job has ended, and when a sweep (every minute) finds
that something has changed since. It does not run if another pass has seen the new job, or began
after the request: of a thousand requests at once, nearly all would find nothing new.

A lease keeps passes from running side by side. A pass that finds the lease taken ends at once,
because the running pass decides about all queued jobs, except those that were submitted after it
had read them. The running pass therefore counts the live jobs at its end, and requests another pass
if their number has changed.

A job that must wait stays QUEUED. Its ledger entry stays pending until it is in the stored queue:
from then on, only passes read it. The entry of an admission is pending until the job's VMs exist,
because the request of the pass may find the lease taken by a delivery that has read the job as
QUEUED. The commit of each admission has the previous admission as precondition, so two concurrent
passes never admit two jobs to the same capacity.
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from trainmaster.core.model.job import Job, JobState
from trainmaster.core.rules.admission_queue import AdmissionQueue, admissible_jobs, queued_jobs
from trainmaster.errors import ConflictError
from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import encode_admission_pass
from trainmaster.ports import CLOCKS_DIFFER, AdmissionToken

TRIES: Final = 5
"""How often one pass takes the admission token again after a conflict. The next pass continues."""
CONFLICT_PAUSE_S: Final = 0.1
"""Pause after the first conflict; it doubles with each further one."""
LEASE: Final = "admission queue"
"""Name of the lease. A job's id has no spaces."""
LEASE_S: Final = 120.0
"""Longer than a pass over thousands of jobs.

After the death of a pass, admission waits this long at most: less if the message that requested the
pass is redelivered, because the same message takes the lease again.
"""
FULL_PASS: Final = timedelta(hours=1)
"""Time after which the sweep requests a pass, although no number has changed."""
STORED_MAX: Final = 10_000
"""Waiting jobs with a stored position. They take about half of Firestore's 1 MiB for a document."""

_log = logging.getLogger(__name__)


def request_pass(deps: Deps) -> None:
    """Request a pass, because a job has ended or time has passed."""
    if deps.limits:
        deps.bus.publish(topics.PROVISION, encode_admission_pass(), attributes={})


def is_pass_due(queue: AdmissionQueue, deps: Deps) -> bool:
    """Whether a job may fit that did not fit in the pass that stored this queue.

    Submissions and ends request a pass of their own. A pass whose request was lost is found by the
    number of live jobs; what that number hides is found within `FULL_PASS`.
    """
    is_old = deps.clock() - queue.read_at >= FULL_PASS
    return is_old or queue.limits != deps.limits or queue.live_count != deps.store.count_live()


class Admission(Enum):
    """What is known about a queued job."""

    ADMITTED = auto()
    WAITS = auto()  # a pass has seen it, and later passes decide about it
    UNDECIDED = auto()  # no pass has seen it: another one holds the lease


def admit(job: Job, fleet_deps: FleetDeps, deps: Deps, message_id: str = "") -> Admission:
    """Run a pass for this queued job, unless a pass has seen it."""
    if deps.store.queue().has_seen(job):
        return Admission.WAITS
    if job.job_id in admit_all(fleet_deps, deps, message_id):
        return Admission.ADMITTED
    return Admission.WAITS if deps.store.queue().has_seen(job) else Admission.UNDECIDED


def admit_all(
    fleet_deps: FleetDeps, deps: Deps, message_id: str = "", requested_at: datetime | None = None
) -> frozenset[str]:
    """Admit all jobs that fit, request their VMs, and return their ids.

    `message_id` is the message that requested the pass, at `requested_at`. Its redelivery takes the
    lease again.
    """
    if requested_at:
        since_request = deps.store.queue().read_at - requested_at
        # Pub/Sub's clock gives the time of the request, and a function's clock that of the pass.
        has_been_served = since_request > CLOCKS_DIFFER
        if has_been_served:
            return frozenset()
    now = deps.clock()
    lease = deps.store.take_lease(LEASE, now, now + timedelta(seconds=LEASE_S), message_id)
    if lease is None:
        return frozenset()
    try:
        admitted, live_count = _run_pass(fleet_deps, deps)
    finally:
        deps.store.release_lease(lease)
    if deps.store.count_live() != live_count:
        request_pass(deps)
    return admitted


def _run_pass(fleet_deps: FleetDeps, deps: Deps) -> tuple[frozenset[str], int]:
    """Return the ids of the admitted jobs, and how many live jobs the decisions were based on."""
    admitted: set[str] = set()
    live_count = 0
    for retry in range(TRIES):
        read_at = deps.clock()
        token = deps.store.admission_token()
        live_count = len(token.live.job_ids)
        waits = queued_jobs(token.live.jobs, deps.limits)
        try:
            for job in admissible_jobs(token.live.jobs, waits, deps.limits):
                _admit_one(job, token, fleet_deps, deps)
                admitted.add(job.job_id)
                token = deps.store.next_admission_token(token, job.job_id)
        except ConflictError:
            jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads writers, keeps no secret
            deps.sleep(jitter * CONFLICT_PAUSE_S * 2**retry)
            continue
        _release_machines_over_limits(admitted, token, deps)
        deps.store.store_queue(
            AdmissionQueue(
                read_at=read_at,
                waits={wait.job_id: wait for wait in waits[:STORED_MAX]},
                live_count=live_count,
                limits=dict(deps.limits),
                is_cut=len(waits) > STORED_MAX,
            )
        )
        return frozenset(admitted), live_count
    _log.warning("another pass admitted jobs in each of %d tries; the next pass continues", TRIES)
    return frozenset(admitted), live_count


def _release_machines_over_limits(admitted: set[str], token: AdmissionToken, deps: Deps) -> None:
    """Release kept machines that exceed a limit together with the jobs that were admitted now.

    Kept machines are VMs that an ended job leaves running for a later one. They count against the
    limits like those of live jobs, and give way to them.
    """
    if admitted:
        jobs = [
            replace(job, state=JobState.PREPARING) if job.job_id in admitted else job
            for job in token.live.jobs
        ]
        kept_machines.release_for_limits(jobs, deps.limits, deps)


def _admit_one(job: Job, token: AdmissionToken, fleet_deps: FleetDeps, deps: Deps) -> None:
    """Admit the job: it takes kept machines that fit, or requests new VMs.

    Raises ConflictError if another job, or this job by another pass, was admitted since the token
    was taken.
    """
    if not kept_machines.start(job, fleet_deps, deps, token, is_admission=True):
        raise ConflictError(f"{job.job_id} was admitted by another pass")
