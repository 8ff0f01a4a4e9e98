"""Builders like those of `tests.support.jobs`, of a job whose replicas are judged each alone."""

from __future__ import annotations

from tests.support import jobs
from trainmaster.core.model.job import Job, JobState, State
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica import Replica


def a_plan(*, workers: int = 2, **changes: object) -> Plan:
    """Return the plan of a chief and some workers."""
    return jobs.a_plan(workers=workers, **{"independent": True, **changes})


def a_job(state: JobState = JobState.RUNNING, plan: Plan | None = None, **changes: object) -> Job:
    """Return a job that was created at `START`."""
    return jobs.a_job(state, plan or a_plan(), **changes)


def a_state(*replicas: Replica, job: Job | None = None) -> State:
    """Return the whole attempt: the given replicas, and the job's other replicas running."""
    return jobs.a_state(*replicas, job=job or a_job())
