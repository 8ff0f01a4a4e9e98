"""Ports that a simulated function invocation gets, and what may happen to it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shared.core.model.job import State
from shared.core.model.replica import Replica
from shared.errors import PermanentError, TemporaryError
from shared.memory.store import MemoryStore
from shared.ports import Loaded


class FunctionCrashed(BaseException):
    """The function instance ended in the middle of an invocation. Not an Exception, so that no flow catches it."""


class InterceptedPort:
    """A port whose calls all go through `intercept(name, call)`, which decides whether and when `call` is applied."""

    def __init__(self, port: object, intercept: Callable[[str, partial[Any]], Any]) -> None:
        self._port, self._intercept = port, intercept

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        return lambda *args, **kwargs: self._intercept(name, partial(method, *args, **kwargs))


class SplitReads:
    """A store that reads a job and its lost replicas in two requests, as on Firestore.

    The first reads the job, and the replica that is read by its key; then a query reads the other replicas. `between`
    runs between the two. A whole attempt is read as of one moment.
    """

    def __init__(self, store: MemoryStore, between: Callable[[], None]) -> None:
        self._store, self._between = store, between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load(self, job_id: str, replica: str | None = None, *, lost_peers: bool = False) -> Loaded | None:
        first = self._store.load(job_id, replica)
        if first is None or not lost_peers or not first.state.replicas:
            return first
        self._between()
        later = self._store.load(job_id, replica, lost_peers=True)
        return _join(
            first, [peer for peer in later.state.replicas if peer.key != replica] if later else [], whole=False
        )


def _join(first: Loaded, later: Sequence[Replica], *, whole: bool) -> Loaded:
    """Return what the first request read, and the replicas that the second one read."""
    state = State(first.state.job, (*first.state.replicas, *later), whole=whole)
    return Loaded(state, {**first.tokens, **{replica.key: replica.version for replica in later}})


class SimAddressBook:
    """Implements `shared.ports.AddressBook`."""

    def address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}:2222"


def run_sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, then raise the first error: what `provision.in_threads` promises, without threads."""
    first: Exception | None = None
    for task in tasks:
        try:
            task()
        except (TemporaryError, PermanentError) as error:
            first = first or error
    if first:
        raise first
