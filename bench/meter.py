"""Count the operations that Firestore would charge for the calls of a client, at the client's
connection.

    read     each document that a request returns or reports as missing; at least one per query
             a count: one for each 1,000 index entries, at least one
    write    each created, updated or set document
    delete   each deleted document

Source: Firestore documentation, "Understand billing".
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.cloud.firestore import Client

ENTRIES_PER_READ: Final = 1000
"""Index entries that a count looks at for the price of one read."""


@dataclass(slots=True)
class Meter:
    """Counts of one client. Thread-safe."""

    requests: int = 0
    reads: int = 0
    writes: int = 0
    deletes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, reads: int = 0, writes: int = 0, deletes: int = 0) -> None:
        """Count one request."""
        with self._lock:
            self.requests += 1
            self.reads += reads
            self.writes += writes
            self.deletes += deletes

    def reset(self) -> None:
        with self._lock:
            self.requests = self.reads = self.writes = self.deletes = 0


def attach(client: Client, meter: Meter) -> None:
    """Count all calls that the client makes from now on."""
    api: Any = client._firestore_api  # noqa: SLF001 - the client offers no hook for what it sends
    api.batch_get_documents = _counted(api.batch_get_documents, _documents, meter)
    api.run_query = _counted(api.run_query, _query_results, meter)
    api.run_aggregation_query = _counted(api.run_aggregation_query, _counts, meter)
    commit = api.commit

    def count_commit(request: Any, **options: Any) -> Any:
        response = commit(request=request, **options)
        deletes = sum("delete" in write for write in request["writes"])
        meter.add(writes=len(request["writes"]) - deletes, deletes=deletes)
        return response

    api.commit = count_commit


def _counted(
    call: Callable[..., Any], reads: Callable[[list[Any]], int], meter: Meter
) -> Callable[..., Iterator[Any]]:
    """Return the call, counted. `reads`: how many reads its responses cost."""

    def count(request: Any, **options: Any) -> Iterator[Any]:
        responses = list(call(request=request, **options))
        meter.add(reads=reads(responses))
        return iter(responses)

    return count


def _documents(responses: list[Any]) -> int:
    """Return the reads of a request for documents by their paths."""
    return sum("found" in response or "missing" in response for response in responses)


def _query_results(responses: list[Any]) -> int:
    """Return the reads of a query."""
    return max(1, sum("document" in response for response in responses))


def _counts(responses: list[Any]) -> int:
    """Return the reads of a count."""
    values: list[int] = [
        value.integer_value
        for response in responses
        for value in response.result.aggregate_fields.values()
    ]
    return max(1, math.ceil(sum(values) / ENTRIES_PER_READ))
