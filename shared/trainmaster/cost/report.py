"""Everything that is shown about a job's machine time and money.

The sources are its ledger, which is the record of its events and decisions; the price list; and one
listing of its directory, whose files show when work was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.reporting.goodput import Goodput, goodput_of
from trainmaster.core.reporting.history import History
from trainmaster.core.reporting.lost_work import Loss, losses
from trainmaster.core.reporting.phases import Span, kept_spans, replica_spans
from trainmaster.cost.checkpoint_times import CheckpointTimes, Listing
from trainmaster.cost.job_cost import JobCost, job_cost
from trainmaster.cost.operations import Operations, operations
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown

Prices = Callable[[], PriceList | Unknown]


@dataclass(frozen=True, slots=True)
class CostSources:
    """Sources of what the ledger does not have."""

    prices: Prices = lambda: Unknown("no price list is configured here")
    checkpoint_times: CheckpointTimes | None = None
    """Lists the files of a job's directory, with their times. None: it is not listed."""
    machine_set: Callable[[Job], MachineSet | None] = lambda _: None
    """Reads the machine set of a job that has one: for how long its machines were kept."""


@dataclass(frozen=True, slots=True)
class CostReport:
    """Machine time, cost and lost work of a job."""

    goodput: Goodput
    """Machine time by attempt, and the part of it that was lost."""
    cost: JobCost | Unknown
    operations: Operations
    losses: tuple[Loss, ...]
    listing: Listing | Unknown | None
    """Objects in the job's directory. None: it was not listed, because no work was lost, or because
    `CostSources.checkpoint_times` is None.
    """
    spans: tuple[Span, ...]
    """The phases of all replicas."""
    kept_s: float
    """Machine-seconds after the job's end in which its machines were kept."""


def cost_report(
    history: History, entries: Sequence[LedgerEntry], now: datetime, sources: CostSources
) -> CostReport | None:
    """Return the report until the job's end, or until `now`. None for a tuning job: see its trials.

    The job's directory is listed once at most, and only if work was lost.
    """
    job = history.state.job
    if job.tuning is not None:
        return None
    spans = replica_spans(history)
    lost = losses(job.plan, spans)
    listing = None
    if lost and sources.checkpoint_times:
        listing = sources.checkpoint_times.listing(job, now)
    written = listing.written_objects if isinstance(listing, Listing) else None
    prices = sources.prices()
    machines = sources.machine_set(job) if job.machines else None
    kept = kept_spans(history, machines) if machines else ()
    charged = (*spans, *kept)
    return CostReport(
        goodput=goodput_of(job, spans, now, written),
        cost=(
            prices if isinstance(prices, Unknown) else job_cost(job, charged, prices, now, written)
        ),
        operations=operations(job, entries, now),
        losses=lost,
        listing=listing,
        spans=spans,
        kept_s=sum(span.seconds(now) for span in kept),
    )
