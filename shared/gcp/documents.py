"""Conversion between the dataclasses of `shared.core` and Firestore documents, by pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job
from shared.core.model.replica import Replica
from shared.core.model.vm_names import job_hash
from shared.core.reconcile.zone_order import Stockout
from shared.errors import TemporaryError
from shared.ports import Orphan, Rejection

SCHEMA: Final = 1
"""Version of the stored shape. Readers ignore unknown fields, so a new optional field does not change it."""

T = TypeVar("T", Job, Replica, LedgerEntry, Rejection, Orphan, Stockout)
Document = dict[str, Any]

_adapters: Final[dict[object, TypeAdapter[Any]]] = {}


def job_document(job: Job) -> Document:
    """Trials have no `submitted_at`: they do not count as submitted jobs."""
    submitted = {} if job.trial_of else {"submitted_at": job.created_at}
    return {**_dump(Job, job), "is_live": not job.state.is_terminal, "vm_hash": job_hash(job.job_id), **submitted}


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
    """Raises TemporaryError for another schema version, so that the event waits for a release that can read it."""
    schema = (document or {}).get("schema", SCHEMA)
    if schema != SCHEMA:
        raise TemporaryError(f"a document has schema version {schema}, and this release reads version {SCHEMA}")
    value: T = _adapter(kind).validate_python(_plain_times(document))
    return value


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Build the adapter at first use: building all of them would add a tenth of a second to every cold start."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _dump(kind: type[T], value: T) -> Document:
    document: Document = _storable(_adapter(kind).dump_python(value))
    return {**document, "schema": SCHEMA}


def _storable(value: Any) -> Any:
    """Replace tuples by lists, and members of enumerations by their values."""
    if isinstance(value, dict):
        return {str(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _plain_times(value: Any) -> Any:
    """Replace Firestore's own subclass of datetime, whose arithmetic and text differ, by datetime."""
    if isinstance(value, dict):
        return {key: _plain_times(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_times(item) for item in value]
    return datetime.combine(value.date(), value.timetz()) if isinstance(value, datetime) else value
