"""A replica is up. When it was the last one of its attempt, the job is running.

Counting comes after the replica's own commit, so that of two last ones at least the later sees both; it is done for a
repeated event too, since the first time may have ended between the two steps.
"""

from __future__ import annotations

from shared.core.events import AllReady, VmReady
from shared.core.jobs import JobState
from shared.flows.record import Deps, record


def handle(event: VmReady, deps: Deps) -> None:
    life = event.life
    record(life.job_id, event, deps)
    loaded = deps.store.load(life.job_id)
    if loaded is None or loaded.state.job.state is not JobState.PREPARING:
        return
    job = loaded.state.job
    if deps.store.count_ready(job.job_id, job.attempt) >= len(job.plan.seats):
        record(job.job_id, AllReady(job.job_id, job.attempt, deps.clock()), deps)
