"""The start of a job: it is RUNNING as soon as every required replica of its attempt has been ready once."""

from __future__ import annotations

from shared.core.events import AllReady
from shared.core.model.gang import is_required, required_replicas
from shared.core.model.job import Job, JobState, State
from shared.core.model.replica import replica_key
from shared.flows.record import Deps, record


def start_if_all_ready(job: Job | None, deps: Deps) -> None:
    """Record that the job runs, if all required replicas of a preparing job have been ready. Safe to repeat.

    `job` may be as it was before the commit of a replica's own event: a job that was running then needs no start, and
    of a preparing one the replicas are counted after the commit. Of two last replicas, at least the later one therefore
    counts both. A job that has been rerun meanwhile ignores the start of its earlier attempt.

    Call it for repeated events too, because the first handling may have ended between its two commits.
    """
    if job is None or job.state is not JobState.PREPARING:
        return
    if _are_required_ready(job, deps):
        record(AllReady(job.job_id, job.attempt, deps.clock()), deps)


def _are_required_ready(job: Job, deps: Deps) -> bool:
    """Whether every required replica has been ready.

    Counting costs one read, whatever the size. If others are ready too (`gang: false`), the required replicas are read
    as well, but only when enough replicas are ready: not with each of a thousand reports.
    """
    required = required_replicas(job.plan)
    if deps.store.count_ready(job.job_id, job.attempt) < len(required):
        return False
    if job.plan.gang:
        return True
    for replica_id in required:
        loaded = deps.store.load(job.job_id, replica_key(job.attempt, replica_id))
        replica = loaded.state.find(job.attempt, replica_id) if loaded else None
        if replica is None or not replica.ever_ready:
            return False
    return True


def is_start_missed(state: State) -> bool:
    """Whether the job does not run although its required replicas have been ready: the function that counted died.

    `state` holds the whole attempt.
    """
    return state.job.state is JobState.PREPARING and all(
        replica.ever_ready for replica in state.replicas if is_required(state.job.plan, replica.replica_id)
    )
