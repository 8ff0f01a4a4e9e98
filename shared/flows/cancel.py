"""A user cancels a job: its VMs are given back at once. To a job that has ended nothing happens."""

from __future__ import annotations

from shared.core.events import CancelRequested
from shared.flows.record import Deps, Recorded, record


def handle(job_id: str, by: str, deps: Deps) -> Recorded:
    """Safe to repeat. Raises PermanentError where there is no such job."""
    return record(job_id, CancelRequested(job_id, by, deps.clock()), deps)
