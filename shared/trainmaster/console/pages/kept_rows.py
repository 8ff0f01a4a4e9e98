"""The machines that wait for a next job, as the pages show them.

A machine set is the VMs that one job after another uses; its holder is the last of these jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.console.pages.job_rows import currency_of
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.ports.machine_sets import machine_set_of
from trainmaster.presentation.cost_view import money_words
from trainmaster.presentation.kept_machines import kept_machine_words, kept_price, submitter_of


@dataclass(frozen=True, slots=True)
class KeptRow:
    """Machines that an ended job keeps."""

    job_id: str
    owner: str
    """The user whose jobs may take them; empty: unknown."""
    machines: str
    zone: str
    since: datetime
    until: datetime
    price: str
    """List price per hour; empty: it is not known."""


def kept_rows(console: Console) -> tuple[KeptRow, ...]:
    """Return all machines that are kept, in the order of their jobs' ends."""
    rows = []
    for kept in console.store.kept_machines():
        loaded = console.store.load(kept.machine_set.holder)
        rows.append(_row(console, kept.machine_set, loaded.state.job if loaded else None))
    return tuple(rows)


def kept_row(console: Console, job: Job) -> KeptRow | None:
    """Return the machines that this job keeps; None: it keeps none."""
    machines = machine_set_of(job, console.store)
    if machines is None or not machines.is_kept or machines.holder != job.job_id:
        return None
    return _row(console, machines, job)


def _row(console: Console, machines: MachineSet, holder: Job | None) -> KeptRow:
    prices = console.cost_sources.prices()
    price = kept_price(machines, holder, prices) if holder else None
    return KeptRow(
        job_id=machines.holder,
        owner=submitter_of(machines),
        machines=kept_machine_words(machines),
        zone=machines.zone,
        since=machines.ended_at,
        until=machines.until,
        price=money_words(price, currency_of(prices)) if price is not None else "",
    )
