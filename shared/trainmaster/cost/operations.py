"""Firestore operations and invocations of the control plane for one job, computed from its ledger.

    entry of the ledger     an event was read and judged; one commit wrote the entry and a document
    entry with effects      one message more to `provision` or `tune`, and its confirmation
    exit without an entry   a member failed after its round had ended: a message that is only read
    report that is awaited  the replicas that are ready are counted
    provisioning            a delivery of a message to `provision` reads the whole attempt once;
                            effects that are close in time share one
    accepting, rerunning    write every replica
    sweep                   looks at a running job every minute

A *round* is one common start of all members of a synchronous job. It is *held* until all of them
are ready, and then judged: it begins, or the job is rerun or ends.

A test compares these figures with those that flows on the adapters in memory need; they agree
within 20 %.

Sources of the list prices: "Firestore pricing", Standard edition, multi-region; "Cloud Run
functions pricing", tier 1. The prices are of November 2026, from copies of these pages. A database
in one region of the United States costs about half. Free tiers are left out, and so are VMs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.core.actions import AcceptJob, BeginPreparing, BeginRunning, MarkReady, RerunJob
from trainmaster.core.events import AllReady, VmReady
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, JobState

READ_USD: Final = 0.06 / 100_000
WRITE_USD: Final = 0.18 / 100_000
DELETE_USD: Final = 0.02 / 100_000
INVOCATION_USD: Final = 0.40 / 1_000_000
VCPU_S_USD: Final = 0.000024
GIB_S_USD: Final = 0.0000025
BILLED_S: Final = 0.1
"""Assumed time of one invocation: the smallest that is charged.

Invocations that share an instance cost less, and deliveries of `provision` that wait for VMs cost
more.
"""
MEMORY_GIB: Final = 0.5
"""As infra/functions.tf sets for most functions."""
COMPUTE_USD: Final = BILLED_S * (VCPU_S_USD + MEMORY_GIB * GIB_S_USD)
"""One vCPU and the memory for one invocation."""
SHARED_WITHIN: Final = timedelta(seconds=2)
"""Effects within this time of each other are provisioned together: a delivery takes about as long.
"""
READS_PER_SWEEP: Final = 6
"""Reads per running job and minute. Source: decision 31."""
READS_PER_EVENT: Final = 2
"""The job and the replica."""
READS_PER_EFFECT: Final = 2
"""The entry: whether it is pending, and as one of the pending entries when a delivery ends."""
READS_PER_DELIVERY: Final = 8
"""Besides the replicas: the job, its lease, and the counts of pending entries and the query for
them, each of which is charged as one read if there is none.
"""


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
        firestore = self.reads * READ_USD + self.writes * WRITE_USD + self.deletes * DELETE_USD
        return firestore + self.invocations * (INVOCATION_USD + COMPUTE_USD)

    @property
    def words(self) -> str:
        """The numbers of operations, and their price, as a line of text."""
        counts = f"{self.invocations} invocations, {self.reads} reads, {self.writes} writes"
        return f"{counts}: about {self.dollars:.6f} USD"


def operations(job: Job, entries: Sequence[LedgerEntry], now: datetime) -> Operations:
    """Return what the control plane did for this job until now.

    Reads by the console and by callers of the API are not included.
    """
    replicas = len(job.plan.replica_ids)
    with_effects = [entry for entry in entries if entry.effects]
    internal = sum(_is_internal(entry) for entry in entries)
    reruns = sum(isinstance(entry.decision.action, RerunJob) for entry in entries)
    accepted = sum(isinstance(entry.decision.action, AcceptJob) for entry in entries)
    counting = sum(
        isinstance(entry.decision.action, MarkReady)
        and (entry.job_state is JobState.PREPARING or job.plan.is_synchronous)
        for entry in entries
    )
    unrecorded = _unrecorded_exits(entries)
    deliveries = _deliveries(with_effects)
    held_rounds = sum(_judges_held_round(entry) for entry in entries)
    minutes = 0.0
    if job.started_at is not None:
        minutes = ((job.ended_at or now) - job.started_at).total_seconds() / 60

    reads = READS_PER_EVENT * (len(entries) + unrecorded)
    reads += counting
    reads += READS_PER_EFFECT * len(with_effects)
    reads += deliveries * (replicas + READS_PER_DELIVERY)
    reads += round(READS_PER_SWEEP * minutes)

    writes = 2 * len(entries)  # the entry, and the document that it changes
    writes += len(with_effects)  # the confirmation
    writes += replicas * accepted
    writes += 2 * replicas * reruns  # those of the attempt that ended, and of the new one
    writes += deliveries  # the lease

    # Of leases: one for each delivery, and one at the job's end.
    deletes = deliveries
    if job.state.is_terminal:
        deletes += 1

    invocations = len(entries) - internal
    invocations += len(with_effects)
    invocations += unrecorded
    invocations += held_rounds  # requested by the last report, which has no effect of its own
    return Operations(reads, writes, deletes, invocations)


def _is_internal(entry: LedgerEntry) -> bool:
    """Whether a function recorded the entry while it handled another event."""
    if isinstance(entry.event, AllReady):
        return True
    return isinstance(entry.decision.action, BeginPreparing | BeginRunning)


def _unrecorded_exits(entries: Iterable[LedgerEntry]) -> int:
    """Return how many exits were read and not recorded.

    The next reports of these members contain them.
    """
    keys = {entry.key for entry in entries}
    ends = [entry.event.ended for entry in entries if isinstance(entry.event, VmReady)]
    return len({end.key for end in ends if end is not None} - keys)


def _deliveries(entries: Iterable[LedgerEntry]) -> int:
    """Return how many deliveries of `provision` carried out the effects of these entries.

    The judgement of a held round has a delivery of its own, which the last member to report for
    the round requests.
    """
    count = 0
    last: datetime | None = None
    for entry in entries:
        is_shared = last is not None and entry.at - last <= SHARED_WITHIN
        if _judges_held_round(entry) or not is_shared:
            count += 1
        last = entry.at
    return count


def _judges_held_round(entry: LedgerEntry) -> bool:
    """Whether the entry is the judgement of a held round whose members are ready: it begins, or the
    job is rerun or ends.
    """
    return isinstance(entry.event, AllReady) and entry.event.round > 0
