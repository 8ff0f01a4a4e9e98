"""Conversion between the dataclasses of `trainmaster.core` and Firestore documents, by pydantic.

The modules of this package use it for all reads and writes. A document has the fields of its
dataclass, the version of their shape, and fields that only queries use, such as `is_live`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.model.job import Job
from trainmaster.core.model.job_names import lower_case_names
from trainmaster.core.model.machine_set import MachineSet
from trainmaster.core.model.owner import owner
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm_names import job_hash
from trainmaster.core.rules.admission_queue import waits_for_admission
from trainmaster.core.rules.user_requests import end_of_wait
from trainmaster.core.timeouts import HISTORY_KEPT
from trainmaster.errors import TemporaryError
from trainmaster.ports import Orphan, Rejection, SweepRequests

SCHEMA: Final = 1
"""Version of the stored shape.

Readers ignore unknown fields, so a new optional field does not change it.
"""

NOTIFICATION_PENDING: Final = "is_notification_pending"
"""Field of a ledger entry whose notification has not been confirmed.

Confirmed entries do not have it.
"""
OWNER: Final = "owner"
"""Field with the user that submitted the job, in lower case; empty: unknown."""
NAMES: Final = "names"
"""Field with the names by which lists find the job (`lower_case_names`)."""
IS_ACTIVE: Final = "is_active"
"""Field of a job: whether it is live, and does not wait in the admission queue. About a waiting
job, only admission passes decide.
"""
WAIT_ENDS_AT: Final = "wait_ends_at"
"""Field of a job that waits for its admission: when `maxWaitTime` ends it. None: never."""
FAILING: Final = "failing_in"
"""Field of a replica that has failed several times in a row: its job and attempt. None: it has
not.
"""
TEXTS: Final[Mapping[object, tuple[str, ...]]] = {
    Job: ("plan",),
    LedgerEntry: ("event", "decision"),
}
"""Fields that are stored as JSON text. Nothing queries what is in them, and converting a map to
Firestore's values and back takes more time than all the rest of a read or a write. Each function
commits one entry per event.
"""
EXPIRE_AT: Final = "expire_at"
"""Field with the time after which Firestore may delete the document. Documents without it stay."""

NOT_STORED_IF_NONE: Final = frozenset(
    ("machines", "keep_s", "persistent_resource", "taken", "misfit")
)
"""Fields of jobs that keep their machines for the next job, or take those of an earlier one. The
documents of all other jobs do not have them.
"""

T = TypeVar("T", Job, Replica, LedgerEntry, Rejection, Orphan, Outcome, MachineSet, SweepRequests)
P = TypeVar("P")
Document = dict[str, Any]

_adapters: Final[dict[object, TypeAdapter[Any]]] = {}
"""The adapters that have been used, by class."""


def job_document(job: Job) -> Document:
    """Return the job's document.

    Trials have neither `submitted_at` nor `api_submitted_at`: they do not count as submitted. Nor
    do they have an `owner`: lists find their tuning job.
    """
    is_waiting = waits_for_admission(job)
    time_field = submission_time_field(through_api=job.through_api)
    submitted = {} if job.trial_of else {time_field: job.created_at, OWNER: owner(job).user.lower()}
    return {
        **_dump(Job, job),
        "is_live": not job.state.is_terminal,
        IS_ACTIVE: not (job.state.is_terminal or is_waiting),
        WAIT_ENDS_AT: end_of_wait(job) if is_waiting else None,
        "vm_hash": job_hash(job.job_id),
        NAMES: list(lower_case_names(job)),
        **submitted,
    }


def submission_time_field(*, through_api: bool) -> str:
    """Return the field with the time of a submission.

    Each way of submission has its own, and its own count.
    """
    return "api_submitted_at" if through_api else "submitted_at"


def replica_document(replica: Replica, job_id: str, expire_at: datetime | None = None) -> Document:
    """Return the document of a replica of this job."""
    queried = {name: getattr(replica, name) for name in ("ever_ready", "ready_for")}
    is_failing = replica.failing is not None and replica.failing.is_shown
    queried[FAILING] = failing_key(job_id, replica.attempt) if is_failing else None
    return _with_expiry({**_dump(Replica, replica), **queried}, expire_at)


def failing_key(job_id: str, attempt: int) -> str:
    """Return the value of `FAILING` of the failing replicas of an attempt.

    It contains no time: an index of values that only grow would limit the rate of writes.
    """
    return f"{job_id}#{attempt}"


def entry_document(entry: LedgerEntry, expire_at: datetime | None = None) -> Document:
    """Return the entry's document.

    Only an open notification has a field, so that other entries cost no index entry.
    """
    document = {**_dump(LedgerEntry, entry), "is_pending": entry.is_pending}
    if entry.is_notification_pending:
        document[NOTIFICATION_PENDING] = True
    return _with_expiry(document, expire_at)


def machine_set_document(machines: MachineSet) -> Document:
    """Return the document of a machine set. It stays: the costs of its jobs are read from it."""
    return _dump(MachineSet, machines)


def orphan_document(orphan: Orphan) -> Document:
    """Return the document of an orphan: a VM whose job does not exist. It stays until the VM is
    gone.
    """
    return _dump(Orphan, orphan)


def outcome_document(outcome: Outcome) -> Document:
    """Return the document of what a request for VMs resulted in."""
    return _with_expiry(_dump(Outcome, outcome), outcome.at + HISTORY_KEPT)


def rejection_document(rejection: Rejection) -> Document:
    """Return the document of a rejected submission."""
    return _with_expiry(_dump(Rejection, rejection), rejection.at + HISTORY_KEPT)


class UnreadableError(TemporaryError):
    """A document that this release cannot read. The event waits for a release that can."""


def read(kind: type[T], document: Mapping[str, Any] | None) -> T:
    """Return the value that the document stores.

    Raises UnreadableError for another schema version or another shape.
    """
    schema = (document or {}).get("schema", SCHEMA)
    if schema != SCHEMA:
        raise UnreadableError(
            f"a document has schema version {schema}, and this release reads version {SCHEMA}"
        )
    plain = _plain_times(document or {})
    for field in TEXTS.get(kind, ()):
        try:
            plain[field] = json.loads(plain[field])
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(kind, field, "is not JSON text") from error
    try:
        value: T = _adapter(kind).validate_python(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise _unreadable(kind, field, first["msg"]) from error
    return value


def _unreadable(kind: type, field: str, problem: str) -> UnreadableError:
    """Return the error of a document whose field has another shape than this release reads."""
    return UnreadableError(f"a document cannot be read as {kind.__name__}: {field}: {problem}")


def pack(value: object) -> bytes:
    """Return the value as one field, for a document that is only read whole."""
    return zlib.compress(_adapter(type(value)).dump_json(value))


def unpack(kind: type[P], packed: bytes) -> P | None:
    """Return the value; None if another release packed another shape.

    The next writer replaces it.
    """
    with suppress(ValidationError):
        return cast(P, _adapter(kind).validate_json(zlib.decompress(packed)))
    return None


def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Build the adapter at first use: building all of them would add a tenth of a second to every
    cold start.
    """
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _dump(kind: type[T], value: T) -> Document:
    """Return the fields of the value as Firestore stores them, and the version of their shape."""
    document: Document = _storable(_adapter(kind).dump_python(value))
    texts = {
        field: json.dumps(document[field], default=datetime.isoformat, ensure_ascii=False)
        for field in TEXTS.get(kind, ())
    }
    return {**document, **texts, "schema": SCHEMA}


def _with_expiry(document: Document, expire_at: datetime | None) -> Document:
    return {**document, EXPIRE_AT: expire_at} if expire_at else document


def _storable(value: Any) -> Any:
    """Replace tuples by lists, members of enumerations by their values, and decimals by text."""
    if isinstance(value, dict):
        return {
            str(key): _storable(item)
            for key, item in value.items()
            if item is not None or key not in NOT_STORED_IF_NONE
        }
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if isinstance(value, str | Decimal):
        return str.__str__(str(value))  # a plain str, not the member of a StrEnum
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number else value


def _plain_times(value: Any) -> Any:
    """Replace Firestore's own subclass of datetime, whose arithmetic and text differ,
    by datetime.
    """
    if isinstance(value, dict):
        return {key: _plain_times(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_times(item) for item in value]
    if isinstance(value, datetime):
        return datetime.combine(value.date(), value.timetz())
    return value
