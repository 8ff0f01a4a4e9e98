"""The start of a job: it is RUNNING as soon as every replica of its attempt has been ready once."""

from __future__ import annotations

from shared.core.events import AllReady
from shared.core.model.job import JobState
from shared.flows.record import Deps, record


def start_if_all_ready(job_id: str, deps: Deps) -> None:
    """Record that the job runs, if all replicas of a preparing job have been ready. Safe to repeat.

    Call it after the commit of the replica's own event: of two last replicas, at least the later one then counts both.
    Call it for repeated events too, because the first handling may have ended between its two commits.
    """
    loaded = deps.store.load(job_id)
    if loaded is None or loaded.state.job.state is not JobState.PREPARING:
        return
    job = loaded.state.job
    if deps.store.count_ready(job.job_id, job.attempt) >= len(job.plan.replica_ids):
        record(AllReady(job.job_id, job.attempt, deps.clock()), deps)
