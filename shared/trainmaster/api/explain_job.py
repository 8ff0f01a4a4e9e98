"""The method `explain`: the decisions about a job, for callers who cannot read the stored state."""

from __future__ import annotations

from trainmaster.api.errors import Json
from trainmaster.core.model.job import Job, State
from trainmaster.core.rules.admission_queue import Limits, wait_of_job
from trainmaster.ports import Store
from trainmaster.presentation.explanation import explanation


def explain_job(job: Job, store: Store, limits: Limits) -> Json:
    """Return the explanation of a job. It costs one read per replica and one per ledger entry."""
    loaded = store.load_attempt(job.job_id)
    state = loaded.state if loaded else State(job)
    wait = wait_of_job(job, store.live_jobs, limits)
    return explanation(state, store.ledger(job.job_id), store.pending_keys(job.job_id), wait)
