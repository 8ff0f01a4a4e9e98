"""The page of the installation: limits and the admission queue, capacity, and what no event
reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.console.pages.kept_rows import KeptRow, kept_rows
from trainmaster.console.pages.service import Console
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.rules.admission_queue import (
    Wait,
    amount_words,
    is_weight,
    queued_jobs,
    used_resources,
)
from trainmaster.ports import Orphan, Rejection

STOCKOUT_WINDOW: Final = timedelta(days=1)
"""Age up to which a stockout, a refusal of VMs for lack of capacity, is shown."""
REJECTIONS_MAX: Final = 50
"""Rejected submissions that the page shows, the latest."""


@dataclass(frozen=True, slots=True)
class LimitRow:
    """The use of one limited resource."""

    resource: str
    used: str
    limit: int


@dataclass(frozen=True, slots=True)
class InstallationPage:
    """The page of the installation."""

    project: str
    version: str
    at: datetime
    """When it was read."""
    live: int
    """Number of jobs that have not ended."""
    limits: tuple[LimitRow, ...]
    queue: tuple[Wait, ...]
    """Queued jobs that may not start yet."""
    kept: tuple[KeptRow, ...]
    """Machines that wait for a next job."""
    unreadable: tuple[str, ...]
    """Ids of jobs whose documents cannot be read."""
    stockouts: tuple[Outcome, ...]
    """Refusals of VMs for lack of capacity."""
    orphans: tuple[Orphan, ...]
    """VMs and TPU nodes without a live job."""
    rejections: tuple[Rejection, ...]
    """The latest rejected submissions."""
    has_older_rejections: bool
    pending: tuple[str, ...]
    """Ids of jobs with unconfirmed effects, except jobs in `queue`, whose effects begin after
    admission.
    """


def read_installation_page(console: Console) -> InstallationPage:
    """Return the page. It reads all live jobs."""
    store = console.store
    now = console.now
    live = store.live_jobs()
    used = used_resources(live.jobs)
    limits = tuple(
        LimitRow(name, amount_words(used[name]), limit)
        for name, limit in console.limits.items()
        if not is_weight(name)
    )
    queue = queued_jobs(live.jobs, console.limits)
    queued = {wait.job_id for wait in queue}
    pending = set(store.jobs_with_pending()) - queued
    # Effects of an ended job that keeps its machines stay unconfirmed until they are released.
    kept = kept_rows(console)
    keeping = {row.job_id for row in kept}
    rejections = store.rejections(REJECTIONS_MAX + 1)
    return InstallationPage(
        project=console.project,
        version=console.version,
        at=now,
        live=len(live.job_ids),
        limits=limits,
        queue=queue,
        kept=kept,
        unreadable=live.unreadable,
        stockouts=store.stockouts(now - STOCKOUT_WINDOW),
        orphans=store.orphans(),
        rejections=rejections[:REJECTIONS_MAX],
        has_older_rejections=len(rejections) > REJECTIONS_MAX,
        pending=tuple(sorted(pending - keeping)),
    )
