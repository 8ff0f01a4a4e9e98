"""A store and a fleet that count their calls, and the documents that Firestore would charge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from trainmaster.ports import AdmissionToken, Fleet, LiveJobs, Loaded, PendingEntries, Store

SINGLE_READS = frozenset({"next_admission_token"})
"""Calls of the store that read one document, whatever they return."""
WITHOUT_READS = frozenset(
    {
        "commit",
        "release_lease",
        "note_outcome",
        "store_queue",
        "note_sweep_requests",
        "note_sweep_reached",
    }
)


@dataclass
class Counts:
    """Calls, and the documents that Firestore would charge as read, written and deleted."""

    calls: Counter[str] = field(default_factory=Counter)
    reads_by_call: Counter[str] = field(default_factory=Counter)
    writes: int = 0
    deletes: int = 0

    @property
    def reads(self) -> int:
        return self.reads_by_call.total()


def counting_store(store: Store, counts: Counts) -> Store:
    return cast(Store, _Counting(store, counts, has_documents=True))


def counting_fleet(fleet: Fleet, counts: Counts) -> Fleet:
    return cast(Fleet, _Counting(fleet, counts, has_documents=False))


class _Counting:
    """A port whose calls are counted. `has_documents`: it is a store."""

    def __init__(self, port: object, counts: Counts, *, has_documents: bool) -> None:
        self._port = port
        self._counts = counts
        self._has_documents = has_documents

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            counts = self._counts
            counts.calls[name] += 1
            if not self._has_documents:
                return result
            if isinstance(result, Iterator):
                return self._count_pages(name, result)
            counts.reads_by_call[name] += documents_read(name, args, result)
            counts.writes += len(documents_written(name, args, result))
            counts.deletes += name == "release_lease"  # the only call that deletes a document
            return result

        return call

    def _count_pages(self, name: str, pages: Iterator[Any]) -> Iterator[Any]:
        """Count each page when it is read."""
        for page in pages:
            self._counts.reads_by_call[name] += documents(page)
            yield page


def documents_read(name: str, args: Sequence[Any], result: object) -> int:
    """Return how many documents this call of the store has read, at least one for a query."""
    if name == "mark_done":
        _, keys, _, *optional_tokens = args
        known = {key for tokens in optional_tokens for key in tokens or {}}
        # Entries whose versions the caller knows are written without a read.
        return 0 if known.issuperset(keys) else len(keys)
    if name in WITHOUT_READS:
        return 0
    return 1 if name in SINGLE_READS else documents(result)


def documents_written(name: str, args: Sequence[Any], result: object) -> list[str]:
    """Return the paths of the documents that this call of the store has written."""
    written: list[str] = []
    match name, args:
        case "commit", (_, entry, change, *more):
            job = f"jobs/{entry.job_id}"
            written = [f"{job}/ledger/{entry.key}"]
            written += [job] if change.job else []
            written += [f"{job}/replicas/{replica.key}" for replica in change.replicas]
            written += [f"machines/{change.machines.set_id}"] if change.machines else []
            written += ["control/admission_token"] if any(more) else []
        case "mark_done", (job_id, keys, *_):
            written = [f"jobs/{job_id}/ledger/{key}" for key in keys]
        case "take_lease", (lease, *_):
            written = [f"leases/{lease}"] if result else []
        case "extend_lease", (lease, *_):
            written = [f"leases/{lease.name}"]
        case "note_outcome", (outcome,):
            written = [f"capacity/{outcome.key}"]
        case "store_queue", _:
            written = ["control/admission_queue"]
        case "note_sweep_requests" | "note_sweep_reached", _:
            written = ["control/sweep"]
    return written


def documents(result: object) -> int:
    """Return how many documents were read for this result.

    Source: Firestore charges each request for at least one.
    """
    match result:
        case Loaded():
            sets = 1 if result.state.job.machines else 0
            return 1 + len(result.state.replicas) + sets
        case LiveJobs():
            return max(1, len(result.job_ids))
        case PendingEntries():
            return max(1, len(result.included) + len(result.later))
        case AdmissionToken():
            return 1 + max(1, len(result.live.job_ids))
        case tuple() | dict():  # a dict of counts: one aggregation each
            return max(1, len(result))
        case _:
            return 1
