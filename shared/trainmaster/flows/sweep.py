"""The scheduled pass that finds what no event reported.

The sweep requests from `provision`, which alone may list and delete VMs:

    reconciliations    of every job that changes or has unconfirmed effects: they find VMs that are
                       missing, stopped or not needed, or whose agent has not reported
    one listing        of all VMs (`flows.provisioning.vm_check`): it finds running jobs with too
                       few or too many VMs, and VMs that belong to no job

It requests jobs again only when the requests of the sweep before have been delivered: behind a
backlog, a second request would be handled no sooner. The request for the listing is published last,
and stands for all of them (`vm_check`). Until one is delivered, each sweep publishes another one:
the first may be lost.

Then it publishes the notifications that their events left open, and records passed deadlines and
costs, because no event arrives when time passes.

A job in which nothing changes costs a few reads in each sweep, whatever its size, and one that
waits in the admission queue costs none. Jobs are read in parts, so that the memory of a sweep does
not grow with their number. An error of one job does not stop the sweep of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from trainmaster.core.events import CostChecked, DeadlinePassed
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm_names import job_hash
from trainmaster.core.reconcile.attention import needs_reconciliation
from trainmaster.core.rules.user_requests import must_check_cost, passed_deadline
from trainmaster.cost.cap import spent_at_most
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit import notify
from trainmaster.flows.commit.record import Deps, record
from trainmaster.flows.provisioning import admission
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import (
    ProvisionRequest,
    encode_admission_pass,
    encode_orphan_search,
    encode_provision,
)
from trainmaster.messaging.push import Message
from trainmaster.ports import CLOCKS_DIFFER, SweepRequests

_log = logging.getLogger(__name__)


def handle(deps: Deps) -> tuple[str, ...]:
    """Return the ids of the jobs whose reconciliation was requested.

    Raises TemporaryError at the end if a passed deadline could not be recorded.
    """
    now = deps.clock()
    wanted = set(deps.store.jobs_with_pending())
    due: list[Job] = []
    unreadable: set[str] = set()
    for page in deps.store.live_pages(waiting=not deps.limits):
        wanted.update(job.job_id for job in page.jobs if needs_reconciliation(job, now))
        due.extend(job for job in page.jobs if _is_due(job, now))
        unreadable.update(page.unreadable)
    is_pass_due = False
    if deps.limits:
        queue = deps.store.queue()
        is_pass_due = admission.is_pass_due(queue, deps)
        wanted -= set(queue.waits)
        due.extend(deps.store.overdue_waits(now))
    # Not by id: trials of one tuning job that `provision` handles at the same time change the
    # tuning job at the same time, too, and their commits would be in each other's way.
    job_ids = sorted(wanted - unreadable, key=job_hash)
    if _are_waiting(deps.store.sweep_requests()):
        _log.info("the requests of an earlier sweep have not been delivered yet")
        job_ids = []
        deps.bus.publish(topics.PROVISION, encode_orphan_search(), attributes={})
    else:
        requests = [encode_provision(ProvisionRequest(job_id)) for job_id in job_ids]
        if is_pass_due:
            requests.append(encode_admission_pass())
        requests.append(encode_orphan_search())
        deps.bus.publish_all(topics.PROVISION, requests)
        deps.store.note_sweep_requests(now)
    if deps.notifications is not None:
        notify.publish_open(deps.notifications, deps.store, deps.clock)
    _record_deadlines(due, deps)
    return tuple(job_ids)


def _are_waiting(requests: SweepRequests) -> bool:
    """Whether requests of an earlier sweep wait for their delivery."""
    if requests.requested_at is None:
        return False
    reached_at = requests.reached_at
    return reached_at is None or requests.requested_at - reached_at > CLOCKS_DIFFER


def _is_due(job: Job, now: datetime) -> bool:
    """Whether a deadline of the job has passed, or its cost must be computed."""
    return passed_deadline(job, now) is not None or (
        job.plan.limits.cap is not None and must_check_cost(job, now)
    )


def _record_deadlines(jobs: Iterable[Job], deps: Deps) -> None:
    failed = []
    for job in jobs:
        now = deps.clock()
        try:
            if deadline := passed_deadline(job, now):
                record(DeadlinePassed(job.job_id, deadline, now), deps)
            elif job.plan.limits.cap and must_check_cost(job, now):
                spent = spent_at_most(job.plan.limits.cap, deps.store.ledger(job.job_id), now)
                record(CostChecked(job.job_id, spent, now), deps)
        except Exception:  # noqa: BLE001 - an error of one job stops no other
            _log.exception(
                "the passed deadline of a job could not be recorded", extra={"job_id": job.job_id}
            )
            failed.append(job.job_id)
    if failed:
        raise TemporaryError(
            f"passed deadlines of {len(failed)} jobs could not be recorded, first {failed[0]}"
        )


def on_message(_: Message, deps: Deps) -> None:
    """Sweep. The message has no content: it is sent once a minute."""
    handle(deps)
