"""The jobs and machines that the cancellation of several jobs would end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.console.pages.job_rows import JobRow, job_rows, measure
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The jobs that were selected."""

    rows: tuple[JobRow, ...]
    """Jobs that would end, with their machines."""
    ended: tuple[str, ...]
    """Ids of those that have ended already."""


def read_cancellation(console: Console, jobs: Sequence[Job]) -> Cancellation:
    """Return the selected jobs: those that would end now, and those that have ended already."""
    live = [job for job in jobs if not job.state.is_terminal]
    return Cancellation(
        job_rows(console, live, measure(console, live)),
        tuple(job.job_id for job in jobs if job.state.is_terminal),
    )
