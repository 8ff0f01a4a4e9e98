"""A store and a fleet that count their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from trainmaster.ports import AdmissionToken, Fleet, LiveJobs, Loaded, PendingEntries, Store

SINGLE_READS = frozenset({"next_admission_token"})
WITHOUT_READS = frozenset({"commit", "release_lease", "note_outcome", "store_queue"})


@dataclass
class Counts:
    """Calls, and the documents that Firestore would charge as read, by method."""

    calls: Counter[str] = field(default_factory=Counter)
    reads_by_call: Counter[str] = field(default_factory=Counter)

    @property
    def reads(self) -> int:
        return self.reads_by_call.total()


def counting_store(store: Store, counts: Counts) -> Store:
    return cast(Store, _Counting(store, counts, has_documents=True))


def counting_fleet(fleet: Fleet, counts: Counts) -> Fleet:
    return cast(Fleet, _Counting(fleet, counts, has_documents=False))


class _Counting:
    def __init__(self, port: object, counts: Counts, *, has_documents: bool) -> None:
        self._port = port
        self._counts = counts
        self._has_documents = has_documents

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            self._counts.calls[name] += 1
            if not self._has_documents:
                return result
            if isinstance(result, Iterator):
                return self._count_pages(name, result)
            if name == "mark_done":
                tokens = args[3] if len(args) > 3 else {}
                is_known = set(args[1]) <= set(tokens)
                self._counts.reads_by_call[name] += 0 if is_known else len(args[1])
            elif name not in WITHOUT_READS:
                self._counts.reads_by_call[name] += 1 if name in SINGLE_READS else documents(result)
            return result

        return call

    def _count_pages(self, name: str, pages: Iterator[Any]) -> Iterator[Any]:
        """Count each page when it is read."""
        for page in pages:
            self._counts.reads_by_call[name] += documents(page)
            yield page


def documents(result: object) -> int:
    """Return how many documents were read for this result.

    Source: Firestore charges each request for at least one.
    """
    match result:
        case Loaded():
            return 1 + len(result.state.replicas)
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
