"""Core values as Firestore documents and back. pydantic reads and writes the dataclasses; times stay times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, Replica
from shared.core.reconcile.plan import name_hash
from shared.core.reconcile.zone_order import Stockout
from shared.errors import TemporaryError
from shared.ports import Orphan, Rejection

SCHEMA: Final = 1
"""Version of the stored shape. A reader ignores fields that it does not know."""

T = TypeVar("T", Job, Replica, LedgerEntry, Rejection, Orphan, Stockout)
Document = dict[str, Any]

_adapters: Final[dict[object, TypeAdapter[Any]]] = {}


def job_document(job: Job) -> Document:
    asked = {} if job.trial_of else {"submitted_at": job.created_at}
    return {**_dump(Job, job), "is_live": not job.state.is_terminal, "vm_hash": name_hash(job.job_id), **asked}


def replica_document(replica: Replica) -> Document:
    return {**_dump(Replica, replica), "ever_ready": replica.ever_ready, "ever_lost": replica.ever_lost}


def entry_document(entry: LedgerEntry) -> Document:
    return {**_dump(LedgerEntry, entry), "is_pending": entry.is_pending}


def orphan_document(orphan: Orphan) -> Document:
    return _dump(Orphan, orphan)


def stockout_document(stockout: Stockout) -> Document:
    return _dump(Stockout, stockout)


def rejection_document(rejection: Rejection) -> Document:
    return _dump(Rejection, rejection)


def read(kind: type[T], document: Mapping[str, Any] | None) -> T:
    """Raises TemporaryError for another schema: the event waits for the release that knows it."""
    schema = (document or {}).get("schema", SCHEMA)
    if schema != SCHEMA:
        raise TemporaryError(f"a document of schema {schema}: this release knows schema {SCHEMA}")
    value: T = _adapter(kind).validate_python(document)
    return value


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Made when the first of its kind is read or written: all at once would be a tenth of a second at every start."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _dump(kind: type[T], value: T) -> Document:
    document: Document = _storable(_adapter(kind).dump_python(value))
    return {**document, "schema": SCHEMA}


def _storable(value: Any) -> Any:
    """What a document is made of, whoever stores it: lists, no tuples; words, no members of enumerations."""
    if isinstance(value, dict):
        return {str(key): _storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
