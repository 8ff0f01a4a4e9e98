"""Firestore operations and invocations of the control plane for one job, computed from its ledger.

    entry of the ledger       an event was read and judged, and one commit wrote the entry and a document
    entry with effects        one message more to `provision` or `tune`, and its confirmation
    exit without an entry     a member failed after its round had ended: one message, which is only read
    provisioning              passes read the whole attempt; effects that follow each other closely share a delivery
    held round                `provision` counts the members that are ready until all are
    accepting, rerunning      write every replica
    sweep                     looks at a running job every minute

A test compares these figures with those that flows on the adapters in memory need; they agree within 20 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import (
    AcceptJob,
    BeginPreparing,
    BeginRound,
    BeginRunning,
    MarkReady,
    RerunJob,
    StopRound,
)
from trainmaster.core.events import AllReady, VmReady
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.timeouts import READY_WAIT_MAX
from trainmaster.cost import operation_prices

SHARED_WITHIN: Final = timedelta(seconds=60)
"""Effects within this time of each other are provisioned together: `provision` pauses for up to 4 s between passes."""
SHARED_BY_REPORTS_WITHIN: Final = timedelta(seconds=1)
"""The same for late reports of members: their delivery makes one pass, which takes up to 0.8 s for 1,000 replicas."""
READS_PER_SWEEP: Final = 6
"""Reads per running job and minute. Source: decision 31."""
POLL_S: Final = (0.1, 1.0)
"""Bounds of the time between two counts of the ready members, an eighth of the time waited so far: `READY_POLL_S` of
`trainmaster.flows.provisioning.reconciliation`."""


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
    internal = sum(_is_internal(entry) for entry in entries)
    reruns = sum(isinstance(entry.decision.action, RerunJob) for entry in entries)
    accepted = sum(isinstance(entry.decision.action, AcceptJob) for entry in entries)
    starting = sum(
        isinstance(entry.decision.action, MarkReady) and entry.job_state is JobState.PREPARING for entry in entries
    )
    unrecorded = _unrecorded_exits(entries)
    bursts = list(_bursts(with_effects))
    passes = sum(_passes(burst) for burst in bursts)
    minutes = (((job.ended_at or now) - job.started_at).total_seconds() / 60) if job.started_at else 0.0
    return Operations(
        reads=2 * (len(entries) + unrecorded)
        + starting
        + 3 * len(with_effects)
        + passes * (size + 1)
        + 4 * len(bursts)
        + (_polls(entries) if job.plan.is_synchronous else 0)
        + round(READS_PER_SWEEP * minutes),
        writes=2 * len(entries) + len(with_effects) + size * accepted + 2 * size * reruns + 2 * len(bursts),
        deletes=len(bursts) + job.state.is_terminal,
        invocations=len(entries) - internal + len(with_effects) + unrecorded,
    )


def _is_internal(entry: LedgerEntry) -> bool:
    """Whether a function recorded the event while it handled another one."""
    return isinstance(entry.event, AllReady) or isinstance(entry.decision.action, BeginPreparing | BeginRunning)


def _unrecorded_exits(entries: Iterable[LedgerEntry]) -> int:
    """Return how many exits were read and not recorded: the next reports of these members tell of them."""
    keys = {entry.key for entry in entries}
    ends = [entry.event.ended for entry in entries if isinstance(entry.event, VmReady)]
    return len({end.key for end in ends if end is not None} - keys)


def _bursts(entries: Iterable[LedgerEntry]) -> Iterator[list[LedgerEntry]]:
    """Yield the entries in groups that are provisioned together."""
    burst: list[LedgerEntry] = []
    for entry in entries:
        if burst and not _is_shared(entry, burst):
            yield burst
            burst = []
        burst.append(entry)
    if burst:
        yield burst


def _is_shared(entry: LedgerEntry, burst: Sequence[LedgerEntry]) -> bool:
    """Whether the delivery for the burst is still at work. One for a late member ends soon if others are missing."""
    if not isinstance(entry.decision.action, MarkReady):
        return entry.at - burst[-1].at <= SHARED_WITHIN
    waited_since = next(
        (other.at for other in reversed(burst) if not isinstance(other.decision.action, MarkReady)), None
    )
    is_awaited = waited_since is not None and entry.at - waited_since <= READY_WAIT_MAX
    return is_awaited or entry.at - burst[-1].at <= SHARED_BY_REPORTS_WITHIN


def _passes(burst: Iterable[LedgerEntry]) -> int:
    """Return how often `provision` reads the attempt: once to find that nothing is left to do, and for each change."""
    of_rounds, of_others = 0, 0
    for entry in burst:
        match entry.decision.action:
            case StopRound() as stop:  # `hold`; and the loss, and the replacement
                of_rounds += 3 if stop.replacement else 1
            case BeginRound():  # the verdict, and `run`
                of_rounds += 2
            case RerunJob() if isinstance(entry.event, AllReady):  # the verdict, and `hold`
                of_rounds += 2
            case AcceptJob() | BeginPreparing() | RerunJob():  # all VMs at once
                of_others = max(of_others, 1)
            case MarkReady():  # the verdict follows, or nothing does
                pass
            case _:
                of_others = 3
    return 1 + of_rounds + of_others


def _polls(entries: Iterable[LedgerEntry]) -> int:
    """Return how often `provision` counted the members that were ready for a held round.

    Reports with effects are those for which no delivery waits.
    """
    count = 0
    ordered_at: datetime | None = None
    waited_s = 0.0
    for entry in entries:
        action = entry.decision.action
        if isinstance(action, StopRound | BeginRound | RerunJob):
            count += _polls_within(waited_s)
            ordered_at, waited_s = None if isinstance(action, BeginRound) else entry.at, 0.0
        elif isinstance(action, MarkReady) and not entry.effects and ordered_at is not None:
            waited_s = (entry.at - ordered_at).total_seconds()
    return count + _polls_within(waited_s)


def _polls_within(waited_s: float) -> int:
    count, passed_s = 0, 0.0
    while passed_s < waited_s:
        passed_s += min(max(POLL_S[0], passed_s / 8), POLL_S[1])
        count += 1
    return count
