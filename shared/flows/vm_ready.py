"""A replica is up. When it was the last one of its attempt, the job is running.

Counting comes after the replica's own commit, so that of two last ones at least the later sees both; it is done for a
repeated event too, since the first time may have ended between the two steps.
"""

from __future__ import annotations

from shared.core.events import AllReady, VmReady
from shared.core.model.job import JobState
from shared.flows.record import Deps, record


def handle(event: VmReady, deps: Deps) -> None:
    record(event.subject.job_id, event, deps)
    begin_running(event.subject.job_id, deps)


def begin_running(job_id: str, deps: Deps) -> None:
    """If every replica of a preparing job has been up. Also after an exit 0, which may overtake its vm-ready."""
    loaded = deps.store.load(job_id)
    if loaded is None or loaded.state.job.state is not JobState.PREPARING:
        return
    job = loaded.state.job
    if deps.store.count_ready(job.job_id, job.attempt) >= len(job.plan.replica_ids):
        record(job.job_id, AllReady(job.job_id, job.attempt, deps.clock()), deps)
