"""Firestore operations and invocations of the control plane for one job, computed from its ledger.

    entry of the ledger       an event was read and judged, and one commit wrote the entry and a document
    entry with effects        one message more to `provision` or `tune`, and its confirmation
    provisioning              reads the whole attempt a few times; effects that follow each other closely share it
    accepting, rerunning      write every replica
    sweep                     looks at a running job every minute

A test compares these figures with those that flows on the adapters in memory need; they agree within 20 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import AcceptJob, BeginPreparing, BeginRunning, RerunJob
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job
from trainmaster.cost import operation_prices

SHARED_WITHIN: Final = timedelta(seconds=60)
"""Effects within this time of each other are provisioned together: `provision` pauses for up to 4 s between rounds."""
READS_PER_SWEEP: Final = 6
"""Reads per running job and minute. Source: decision 31."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Estimated numbers of operations."""

    reads: int
    """Firestore documents."""
    writes: int
    deletes: int
    invocations: int
    """Invocations of functions; each one is a Pub/Sub message."""

    @property
    def dollars(self) -> float:
        """USD at list prices, without free tiers."""
        return operation_prices.dollars(self.reads, self.writes, self.deletes, self.invocations)

    @property
    def words(self) -> str:
        counts = f"{self.invocations} invocations, {self.reads} reads, {self.writes} writes"
        return f"{counts}: about {self.dollars:.6f} USD"


def operations(job: Job, entries: Sequence[LedgerEntry], now: datetime) -> Operations:
    """Return what the control plane did for this job until now, without reads of consoles and API callers."""
    size = len(job.plan.replica_ids)
    with_effects = [entry for entry in entries if entry.effects]
    internal = sum(isinstance(entry.decision.action, BeginPreparing | BeginRunning) for entry in entries)
    reruns = sum(isinstance(entry.decision.action, RerunJob) for entry in entries)
    accepted = sum(isinstance(entry.decision.action, AcceptJob) for entry in entries)
    bursts = list(_bursts(with_effects))
    loads = sum(2 if _is_of_whole_attempt(burst) else 4 for burst in bursts)
    minutes = (((job.ended_at or now) - job.started_at).total_seconds() / 60) if job.started_at else 0.0
    return Operations(
        reads=3 * len(entries)
        + 3 * len(with_effects)
        + loads * (size + 1)
        + 4 * len(bursts)
        + round(READS_PER_SWEEP * minutes),
        writes=2 * len(entries) + len(with_effects) + size * accepted + 2 * size * reruns + 2 * len(bursts),
        deletes=2 * len(bursts),
        invocations=len(entries) - internal + len(with_effects),
    )


def _bursts(entries: Iterable[LedgerEntry]) -> Iterable[list[LedgerEntry]]:
    """Yield the entries in groups that are provisioned together."""
    burst: list[LedgerEntry] = []
    for entry in entries:
        if burst and entry.at - burst[-1].at > SHARED_WITHIN:
            yield burst
            burst = []
        burst.append(entry)
    if burst:
        yield burst


def _is_of_whole_attempt(burst: Iterable[LedgerEntry]) -> bool:
    """Whether all VMs are requested, or get their directives, at once, so that fewer rounds are needed."""
    return all(isinstance(entry.decision.action, AcceptJob | BeginPreparing | RerunJob) for entry in burst)
