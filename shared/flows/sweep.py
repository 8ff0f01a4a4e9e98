"""The scheduled pass that finds what no event reported.

Every job that has not ended, and every one with effects not yet seen done, is provisioned again: that finds VMs that
are gone, stopped, silent or left over, and is nothing where all is well. Deadlines are found here, because nothing
else happens when time passes. VMs that belong to no such job are looked for by `provision` too, the only one that may
see and touch machines (`shared.flows.orphans`).
"""

from __future__ import annotations

from shared.core.events import DeadlinePassed
from shared.core.rules.judge import passed_deadline
from shared.flows.record import Deps, record
from shared.messaging import internal_requests, topics


def handle(deps: Deps) -> tuple[str, ...]:
    """Returns the ids of the jobs it looked at."""
    now = deps.clock()
    live = deps.store.live_jobs()
    for job in live:
        if deadline := passed_deadline(job, now):
            record(job.job_id, DeadlinePassed(job.job_id, deadline, now), deps)
    job_ids = sorted({job.job_id for job in live} | set(deps.store.jobs_with_pending()))
    for job_id in job_ids:
        deps.bus.publish(topics.PROVISION, internal_requests.encode_provision(job_id), {})
    deps.bus.publish(topics.PROVISION, internal_requests.encode_orphan_search(), {})
    return tuple(job_ids)
