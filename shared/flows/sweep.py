"""The scheduled pass for what no event reported.

The sweep records passed deadlines, because no event arrives when time passes. It then asks `provision` to look at
every job that has not ended or has unconfirmed effects: that finds VMs that are gone, stopped, without a report or
left over, and changes nothing if all is well. Finally it asks `provision` to look for VMs that belong to no job
(`shared.flows.orphans`), because only `provision` may list and delete VMs.
"""

from __future__ import annotations

from shared.core.events import DeadlinePassed
from shared.core.rules.user_requests import passed_deadline
from shared.flows.record import Deps, record
from shared.messaging import internal_requests, topics


def handle(deps: Deps) -> tuple[str, ...]:
    """Return the ids of the jobs that `provision` was asked to look at."""
    now = deps.clock()
    live_jobs = deps.store.live_jobs()
    for job in live_jobs:
        if deadline := passed_deadline(job, now):
            record(DeadlinePassed(job.job_id, deadline, now), deps)
    job_ids = sorted({job.job_id for job in live_jobs} | set(deps.store.jobs_with_pending()))
    for job_id in job_ids:
        deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job_id), {})
    deps.bus.publish(topics.PROVISION, internal_requests.encode_orphan_search(), {})
    return tuple(job_ids)
